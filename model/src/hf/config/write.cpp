#include <strata/model/hf/config.h>

#include <cmath>

#include <strata/runtime/str.h>

#include "hf/config/gemma4.h"
#include "hf/config/mamba.h"
#include "hf/config/mixers.h"
#include "hf/config/rope.h"
#include "hf/config/text.h"
#include "family/family.h"
#include "hf/text_model.h"

namespace strata {
namespace {

using detail::decimal;
using detail::HfFamily;
using detail::HfKey;
using detail::HfWindows;
using nlohmann::json;

json layer_types_of(const DecoderConfig& c) {
  json types = json::array();
  for (const bool slides : c.sliding) types.push_back(slides ? "sliding_attention" : "full_attention");
  return types;
}

/// Keys of the newer families in addition to LLaMA's.
json switches_json(const DecoderConfig& c) {
  const HfFamily& family = detail::family_of(c).hf;
  json j = json::object();
  const json window = c.window > 0 ? json(c.window) : json(nullptr);
  const bool flagged =
      family.windows == HfWindows::without_rope ||
      ((family.windows == HfWindows::from_layer || family.windows == HfWindows::listed) && c.window > 0);
  const bool by_layer =
      flagged || family.windows == HfWindows::by_pattern || family.windows == HfWindows::with_rope;
  if (flagged) j["use_sliding_window"] = c.window > 0;
  if (by_layer) j["layer_types"] = layer_types_of(c);
  if (by_layer || family.windows == HfWindows::all) j["sliding_window"] = window;
  if (family.windows == HfWindows::without_rope) {
    j["no_rope_layers"] = json::array();
    for (const bool turned : c.rope_layers) j["no_rope_layers"].push_back(turned ? 1 : 0);
  }
  if (family.has_factors)
    j.update({{"embedding_multiplier", decimal(c.embedding_factor)},
              {"residual_multiplier", decimal(c.residual_factor)},
              {"attention_multiplier", decimal(c.score_factor)},
              {"logits_scaling", decimal(c.logit_divisor)}});
  if (!family.is_gemma) return j;
  const auto cap = [](float value) { return value > 0 ? json(decimal(value)) : json(nullptr); };
  j["attn_logit_softcapping"] = cap(c.score_softcap);
  j["final_logit_softcapping"] = cap(c.logit_softcap);
  const float scalar = c.query_scalar > 0 ? c.query_scalar : static_cast<float>(c.head_dim);
  j["query_pre_attn_scalar"] =
      scalar == std::floor(scalar) ? json(static_cast<std::int64_t>(scalar)) : json(decimal(scalar));
  j["hidden_activation"] = "gelu_pytorch_tanh";
  return j;
}

json grouped_experts_json(const DecoderConfig& c, detail::HfExperts how) {
  using enum detail::HfExperts;
  const ExpertsConfig& e = c.experts;
  json j = {{"n_routed_experts", e.n},
            {"num_experts_per_tok", e.per_token},
            {"moe_intermediate_size", e.ffn},
            {"norm_topk_prob", e.rule.renormalize},
            {"routed_scaling_factor", decimal(e.rule.scale)},
            {"n_group", e.rule.groups},
            {"topk_group", e.rule.top_groups},
            {"num_nextn_predict_layers", 0}};  // the files have none
  if (how == nemotron) {
    j["moe_shared_expert_intermediate_size"] = e.shared_ffn;
    j["moe_latent_size"] = e.latent > 0 ? json(e.latent) : json(nullptr);
    return j;
  }
  j.update({{"n_shared_experts", e.shared_ffn / e.ffn}, {"first_k_dense_replace", e.dense_layers}});
  if (how == deepseek_v2) j["topk_method"] = e.rule.by_best ? "group_limited_greedy" : "greedy";
  if (how != glm_lite && c.latent.selects == 0) return j;
  j["mlp_layer_types"] = json::array();
  for (std::int64_t i = 0; i < c.layers; ++i)
    j["mlp_layer_types"].push_back(i < e.dense_layers ? "dense" : "sparse");
  return j;
}

json granite_experts_json(const DecoderConfig& c) {
  const ExpertsConfig& e = c.experts;
  if (e.n == 0) return {{"num_local_experts", 0}, {"shared_intermediate_size", c.ffn}};
  return {{"num_local_experts", e.n},
          {"num_experts_per_tok", e.per_token},
          {"intermediate_size", e.ffn},
          {"shared_intermediate_size", e.shared_ffn}};
}

/// The keys of mixtures of experts.
json experts_json(const DecoderConfig& c) {
  using enum detail::HfExperts;
  const ExpertsConfig& e = c.experts;
  const detail::HfExperts how = detail::family_of(c).hf.experts;
  if (how == none) return json::object();
  if (how == granite) return granite_experts_json(c);
  if (how == nemotron && e.n == 0) return json::object();
  if (how >= deepseek_v2) return grouped_experts_json(c, how);
  const bool is_local = how == mixtral || how == gpt_oss;
  json j = {{is_local ? "num_local_experts" : "num_experts", e.n}, {"num_experts_per_tok", e.per_token}};
  if (how == qwen || how == olmoe || how == lfm2) j["norm_topk_prob"] = e.rule.renormalize;
  if (how == gpt_oss)
    j.update({{"swiglu_limit", decimal(e.gate_limit)}, {"swiglu_alpha", decimal(e.gate_alpha)}});
  if (how != qwen && how != qwen3_5 && how != lfm2) return j;
  j["moe_intermediate_size"] = e.ffn;
  if (how == lfm2)
    j.update({{"num_dense_layers", e.dense_layers},
              {"use_expert_bias", e.choice_bias},
              {"routed_scaling_factor", decimal(e.rule.scale)}});
  if (how == lfm2) return j;
  if (e.shared_gate) j["shared_expert_intermediate_size"] = e.shared_ffn;
  if (how == qwen3_5) return j;
  j["decoder_sparse_step"] = 1;
  j["mlp_only_layers"] = json::array();
  for (std::size_t i = 0; i < e.layers.size(); ++i)
    if (!e.layers[i]) j["mlp_only_layers"].push_back(i);
  if (e.shared_gate && detail::family_of(c).hf.attention_bias == HfKey::ignored) j["qkv_bias"] = c.qkv_bias;
  return j;
}

json llama_json(const DecoderConfig& c) {
  const HfFamily& family = detail::family_of(c).hf;
  json j = {{"num_hidden_layers", c.layers},          {"hidden_size", c.hidden},
            {"num_attention_heads", c.heads},         {"num_key_value_heads", c.kv_heads},
            {"max_position_embeddings", c.positions}, {family.norm_eps_key, decimal(c.norm_eps)}};
  if (c.latent.kv_rank == 0) j["head_dim"] = c.head_dim;
  if (family.experts != detail::HfExperts::qwen3_5) j["intermediate_size"] = c.ffn;
  if (c.mlp == DecoderConfig::Mlp::swiglu) j["hidden_act"] = "silu";
  if (c.mlp == DecoderConfig::Mlp::relu2) j[family.act_key] = "relu2";
  if (family.attention_bias == HfKey::written) j["attention_bias"] = c.qkv_bias;
  if (family.out_bias_key != nullptr) j[family.out_bias_key] = c.out_bias;
  if (family.qk_norm_key) j["use_qk_norm"] = c.qk_norm != DecoderConfig::QkNorm::none;
  if (family.mlp_bias == HfKey::written) j["mlp_bias"] = c.mlp_bias;
  if (family.is_gemma4) {
    j.update(detail::gemma4_json(c));
    return j;
  }
  j.update(detail::rope_json(c));
  j.update(switches_json(c));
  // A Granite 4 without experts does not read their width.
  if (family.experts == detail::HfExperts::granite) j.erase("intermediate_size");
  j.update(experts_json(c));
  j.update(detail::mixers_json(c));
  return j;
}

json family_json(const DecoderConfig& c) {
  using enum detail::HfKeys;
  switch (detail::family_of(c).hf.keys) {
    case gpt2:
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
    case opt:
      return {{"num_hidden_layers", c.layers},
              {"hidden_size", c.hidden},
              {"word_embed_proj_dim", c.hidden},
              {"num_attention_heads", c.heads},
              {"ffn_dim", c.ffn},
              {"max_position_embeddings", c.positions},
              {"activation_function", "relu"},
              {"do_layer_norm_before", true},
              {"dropout", 0.0}};
    case bloom:
      return {{"n_layer", c.layers},   {"hidden_size", c.hidden},
              {"n_head", c.heads},     {"layer_norm_epsilon", decimal(c.norm_eps)},
              {"hidden_dropout", 0.0}, {"attention_dropout", 0.0}};
    case llama:
      return llama_json(c);
  }
  return {};
}

// Sequence classification with one label: its score.
void make_classifier(json& j) {
  j["id2label"] = {{"0", "LABEL_0"}};
  j["label2id"] = {{"LABEL_0", 0}};
  // It scores the last token that is not padding; export_hf() makes the end of text the padding.
  if (j["pad_token_id"].is_null()) j["pad_token_id"] = j["eos_token_id"];
}

}  // namespace

std::string with_tied_head(const std::string& text, bool tied) {
  auto given = detail::parse_config_json(text);
  if (!given.has_value() || !given->is_object()) return text;
  (*given)["tie_word_embeddings"] = tied;
  return given->dump(2) + "\n";
}

std::string with_stacked_experts(const std::string& text) {
  auto given = detail::parse_config_json(text);
  if (!given.has_value() || !given->is_object()) return text;
  (*given)[detail::kStackedExperts] = true;
  return given->dump(2) + "\n";
}

std::string hf_config_json(const DecoderConfig& config, DType dtype, const std::string& source) {
  const DecoderConfig c = with_derived_sizes(config);
  const HfFamily& family = detail::family_of(c).hf;
  json j = {{"bos_token_id", nullptr}, {"eos_token_id", nullptr}, {"pad_token_id", nullptr}};
  if (const auto given = detail::parse_config_json(source); given.has_value() && given->is_object())
    j.update(detail::with_layer_types(detail::text_config_of(*given)));
  j.erase("quantization_config");  // the exported values are not quantized
  j.erase(detail::kStackedExperts);
  if (family.is_gemma4) j.erase(detail::kGemma4LayerKeys);
  j.update(family_json(c));
  j["model_type"] = c.family;
  j["architectures"] = json::array({str(family.class_name, c.scores ? family.classifier : family.causal_lm)});
  if (c.scores) make_classifier(j);
  j["vocab_size"] = c.vocab;
  j["tie_word_embeddings"] = c.tied_head;
  const char* const name = dtype == DType::bf16 ? "bfloat16" : dtype == DType::f16 ? "float16" : "float32";
  j["torch_dtype"] = name;
  if (j.contains("dtype")) j["dtype"] = name;  // the newer name of the key
  return j.dump(2) + "\n";
}

}  // namespace strata
