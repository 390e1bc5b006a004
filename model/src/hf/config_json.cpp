#include <strata/model/hf/config.h>

#include <cmath>
#include <utility>

#include "config_rope.h"
#include <strata/runtime/config/strict_json.h>

namespace strata {
namespace {

using detail::decimal;
using nlohmann::json;

json layer_types_of(const DecoderConfig& c) {
  json types = json::array();
  for (const bool slides : c.sliding) types.push_back(slides ? "sliding_attention" : "full_attention");
  return types;
}

/// Keys of the newer families in addition to LLaMA's.
json switches_json(const DecoderConfig& c) {
  json j = json::object();
  const json window = c.window > 0 ? json(c.window) : json(nullptr);
  if (c.family == "mistral" || c.family == "phi3") j["sliding_window"] = window;
  if (c.family == "smollm3" || (c.family.starts_with("qwen") && c.window > 0)) {
    j["use_sliding_window"] = c.window > 0;
    j["sliding_window"] = window;
    j["layer_types"] = layer_types_of(c);
  }
  if (c.family == "smollm3") {
    j["no_rope_layers"] = json::array();
    for (const bool turned : c.rope_layers) j["no_rope_layers"].push_back(turned ? 1 : 0);
  }
  if (c.norm_offset == 0) return j;
  const auto cap = [](float value) { return value > 0 ? json(decimal(value)) : json(nullptr); };
  j["sliding_window"] = window;
  j["layer_types"] = layer_types_of(c);
  j["attn_logit_softcapping"] = cap(c.score_softcap);
  j["final_logit_softcapping"] = cap(c.logit_softcap);
  const float scalar = c.query_scalar > 0 ? c.query_scalar : static_cast<float>(c.head_dim);
  j["query_pre_attn_scalar"] =
      scalar == std::floor(scalar) ? json(static_cast<std::int64_t>(scalar)) : json(decimal(scalar));
  j["hidden_activation"] = "gelu_pytorch_tanh";
  return j;
}

json llama_json(const DecoderConfig& c) {
  json j = {{"num_hidden_layers", c.layers},
            {"hidden_size", c.hidden},
            {"num_attention_heads", c.heads},
            {"num_key_value_heads", c.kv_heads},
            {"head_dim", c.head_dim},
            {"intermediate_size", c.ffn},
            {"max_position_embeddings", c.positions},
            {"rms_norm_eps", decimal(c.norm_eps)}};
  if (c.mlp == DecoderConfig::Mlp::swiglu) j["hidden_act"] = "silu";
  if (c.family != "qwen2" && c.family != "mistral" && c.family != "phi3") j["attention_bias"] = c.qkv_bias;
  if (c.family == "llama" || c.family == "smollm3") j["mlp_bias"] = c.mlp_bias;
  j.update(detail::rope_json(c));
  j.update(switches_json(c));
  return j;
}

json family_json(const DecoderConfig& c) {
  if (c.family == "gpt2")
    return {{"n_layer", c.layers},
            {"n_embd", c.hidden},
            {"n_head", c.heads},
            {"n_inner", c.ffn},
            {"n_positions", c.positions},
            {"layer_norm_epsilon", decimal(c.norm_eps)},
            {"activation_function", "gelu_new"},
            {"attn_pdrop", 0.0},
            {"embd_pdrop", 0.0},
            {"resid_pdrop", 0.0}};
  if (c.family == "opt")
    return {{"num_hidden_layers", c.layers},
            {"hidden_size", c.hidden},
            {"word_embed_proj_dim", c.hidden},
            {"num_attention_heads", c.heads},
            {"ffn_dim", c.ffn},
            {"max_position_embeddings", c.positions},
            {"activation_function", "relu"},
            {"do_layer_norm_before", true},
            {"dropout", 0.0}};
  if (c.family == "bloom")
    return {{"n_layer", c.layers},   {"hidden_size", c.hidden},
            {"n_head", c.heads},     {"layer_norm_epsilon", decimal(c.norm_eps)},
            {"hidden_dropout", 0.0}, {"attention_dropout", 0.0}};
  return llama_json(c);
}

const char* architecture(std::string_view family) {
  constexpr std::pair<std::string_view, const char*> kNames[] = {
      {"gpt2", "GPT2LMHeadModel"},       {"opt", "OPTForCausalLM"},
      {"bloom", "BloomForCausalLM"},     {"llama", "LlamaForCausalLM"},
      {"qwen2", "Qwen2ForCausalLM"},     {"qwen3", "Qwen3ForCausalLM"},
      {"glm", "GlmForCausalLM"},         {"glm4", "Glm4ForCausalLM"},
      {"mistral", "MistralForCausalLM"}, {"olmo2", "Olmo2ForCausalLM"},
      {"phi3", "Phi3ForCausalLM"},       {"smollm3", "SmolLM3ForCausalLM"},
      {"gemma2", "Gemma2ForCausalLM"},   {"gemma3_text", "Gemma3ForCausalLM"},
  };
  for (const auto& [name, known] : kNames)
    if (name == family) return known;
  return "";
}

// Sequence classification with one label: its score.
void make_classifier(json& j, std::string_view family) {
  std::string name = architecture(family);
  name.erase(name.find(name.ends_with("LMHeadModel") ? "LMHeadModel" : "ForCausalLM"));
  if (family == "gemma3_text") name += "Text";
  j["architectures"] = json::array({name + "ForSequenceClassification"});
  j["id2label"] = {{"0", "LABEL_0"}};
  j["label2id"] = {{"LABEL_0", 0}};
  // It scores the last token that is not padding; export_hf() makes the end of text the padding.
  if (j["pad_token_id"].is_null()) j["pad_token_id"] = j["eos_token_id"];
}

}  // namespace

std::string with_tied_head(const std::string& text, bool tied) {
  auto given = detail::parse_strict_json(text);
  if (!given.has_value() || !given->is_object()) return text;
  (*given)["tie_word_embeddings"] = tied;
  return given->dump(2) + "\n";
}

std::string hf_config_json(const DecoderConfig& config, DType dtype, const std::string& source) {
  const DecoderConfig c = with_derived_sizes(config);
  json j = {{"bos_token_id", nullptr}, {"eos_token_id", nullptr}, {"pad_token_id", nullptr}};
  if (const auto given = detail::parse_strict_json(source); given.has_value() && given->is_object())
    j.update(*given);
  j.erase("quantization_config");  // the exported values are not quantized
  j.update(family_json(c));
  j["model_type"] = c.family;
  j["architectures"] = json::array({architecture(c.family)});
  if (c.scores) make_classifier(j, c.family);
  j["vocab_size"] = c.vocab;
  j["tie_word_embeddings"] = c.tied_head;
  const char* const name = dtype == DType::bf16 ? "bfloat16" : dtype == DType::f16 ? "float16" : "float32";
  j["torch_dtype"] = name;
  if (j.contains("dtype")) j["dtype"] = name;  // the newer name of the key
  return j.dump(2) + "\n";
}

}  // namespace strata
