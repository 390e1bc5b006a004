#include <strata/model/hf/config.h>

#include <algorithm>
#include <span>

#include <strata/runtime/str.h>

#include "hf/config/experts.h"
#include "hf/config/gemma4.h"
#include "hf/config/mamba.h"
#include "hf/config/mixers.h"
#include "hf/config/quantization.h"
#include "hf/config/rope.h"
#include "hf/config/text.h"
#include "family/family.h"
#include "hf/text_model.h"

namespace strata {
namespace {

using detail::HfFamily;
using detail::HfKey;
using detail::HfWindows;
using detail::Keys;
using detail::read_rope;
using nlohmann::json;

constexpr std::string_view kTanhGelu[] = {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"};
constexpr std::string_view kRelu[] = {"relu"};
constexpr std::string_view kSilu[] = {"silu", "swish"};
constexpr std::string_view kRelu2[] = {"relu2"};

/// What the key of the MLP's function may be, and what it is without the key.
struct Activation {
  std::span<const std::string_view> known;
  const char* written;
};

void read_gpt2(Keys& k, DecoderConfig& c) {
  c.layers = k.integer({"n_layer", "num_hidden_layers"});
  c.hidden = k.integer({"n_embd", "hidden_size"});
  c.heads = k.integer({"n_head", "num_attention_heads"});
  c.ffn = k.integer({"n_inner"}, 4 * c.hidden);
  c.positions = k.integer({"n_positions", "max_position_embeddings"});
  c.norm_eps = k.positive({"layer_norm_epsilon"}, 1e-5);
  k.must_be_one_of("activation_function", k.text({"activation_function"}, "gelu_new"), kTanhGelu);
  k.must_be("scale_attn_weights", true, true);
  k.must_be("scale_attn_by_inverse_layer_idx", false, false);
  k.must_be("add_cross_attention", false, false);
}

void read_opt(Keys& k, DecoderConfig& c) {
  c.layers = k.integer({"num_hidden_layers"});
  c.hidden = k.integer({"hidden_size"});
  c.heads = k.integer({"num_attention_heads"});
  c.ffn = k.integer({"ffn_dim"});
  c.positions = k.integer({"max_position_embeddings"});
  k.must_be_one_of("activation_function", k.text({"activation_function"}, "relu"), kRelu);
  k.must_be("do_layer_norm_before", true, true);
  k.must_be("enable_bias", true, true);
  k.must_be("layer_norm_elementwise_affine", true, true);
  k.must_be("_remove_final_layer_norm", false, false);
  if (const std::int64_t width = k.integer({"word_embed_proj_dim"}, c.hidden); width != c.hidden)
    k.unsupported(str("word_embed_proj_dim is ", width, " and hidden_size ", c.hidden));
}

void read_bloom(Keys& k, DecoderConfig& c) {
  c.layers = k.integer({"n_layer", "num_hidden_layers"});
  c.hidden = k.integer({"n_embed", "hidden_size"});
  c.heads = k.integer({"n_head", "num_attention_heads"});
  c.ffn = 4 * c.hidden;  // n_inner is ignored, as in every implementation
  c.norm_eps = k.positive({"layer_norm_epsilon"}, 1e-5);
  k.must_be("apply_residual_connection_post_layernorm", false, false);
  // transformers then leaves out the biases of two matrices.
  if (const std::int64_t parts = k.integer({"pretraining_tp"}, 1);
      parts > 1 && k.flag("slow_but_exact", false))
    k.unsupported(str("slow_but_exact is true with a pretraining_tp of ", parts));
}

bool has_flag(HfWindows windows) {
  return windows == HfWindows::from_layer || windows == HfWindows::listed ||
         windows == HfWindows::without_rope;
}

/// Reads which layers slide, from layer_types or, if that is absent, by the family's rule.
void read_sliding(Keys& k, DecoderConfig& c, HfWindows how) {
  const auto layers = static_cast<std::size_t>(c.layers);
  const json* const types = k.find({"layer_types"});
  if (types == nullptr) {
    c.full_every = k.integer({"sliding_window_pattern"}, c.full_every);
    const bool is_needed = how == HfWindows::by_pattern || (how == HfWindows::with_rope && c.window > 0);
    if (is_needed && c.full_every < 1) k.unsupported("sliding_window_pattern is 0");
    if (!has_flag(how)) return;
    if (how == HfWindows::listed && c.window > 0)
      return k.unsupported(
          "use_sliding_window is true without layer_types: versions of transformers differ in "
          "which layers slide then");
    const std::int64_t first = k.integer({"max_window_layers"}, 28);
    c.sliding.assign(layers, false);
    const bool by_rope = how == HfWindows::without_rope;
    const std::size_t known = by_rope ? c.rope_layers.size() : layers;  // fewer if their key is refused
    for (std::size_t i = 0; i < known && c.window > 0; ++i)
      c.sliding[i] = by_rope ? !c.rope_layers[i] : static_cast<std::int64_t>(i) >= first;
    return;
  }
  if (!types->is_array() || types->size() != layers)
    return k.unsupported(str("layer_types is not a list of ", layers));
  c.sliding.clear();
  for (const json& type : *types) {
    c.sliding.push_back(type == "sliding_attention");
    if (type != "sliding_attention" && type != "full_attention" && type != "attention")  // an older name
      return k.unsupported(str("layer_types has ", type.dump().substr(0, 80)));
  }
  const auto sliding = static_cast<std::size_t>(std::count(c.sliding.begin(), c.sliding.end(), true));
  if (how == HfWindows::all && sliding != (c.window > 0 ? layers : 0))
    k.unsupported(
        str("layer_types has ", sliding, " sliding layers of ", layers, " and sliding_window is ", c.window));
}

void read_window(Keys& k, DecoderConfig& c, HfWindows how) {
  if (how == HfWindows::none) return k.must_be("use_sliding_window", false, false);
  const bool on = !has_flag(how) || k.flag("use_sliding_window", false);
  const std::int64_t otherwise = how == HfWindows::from_layer || how == HfWindows::listed ? 4096 : c.window;
  c.window = !on ? 0 : k.integer({"sliding_window"}, k.has("sliding_window") ? 0 : otherwise);
  read_sliding(k, c, how);
  if (c.window == 0 &&
      (how == HfWindows::by_pattern || std::count(c.sliding.begin(), c.sliding.end(), true) > 0))
    k.unsupported("layers have a sliding window, but sliding_window is not set");
}

/// EXAONE 4's layers without RoPE: where some slide, those that do not.
void set_rope_layers(DecoderConfig& c) {
  if (c.sliding.empty() && c.window > 0)
    c.no_rope_every = c.full_every;
  else if (c.window > 0)
    c.rope_layers = c.sliding;
  else
    c.rope_layers.assign(static_cast<std::size_t>(c.layers), true);
}

/// SmolLM3's layers without RoPE.
void read_rope_layers(Keys& k, DecoderConfig& c) {
  if (detail::family_of(c).hf.windows != HfWindows::without_rope) return;
  c.no_rope_every = k.integer({"no_rope_layer_interval"}, c.no_rope_every);
  if (c.no_rope_every < 1) return k.unsupported("no_rope_layer_interval is 0");
  const json* const given = k.find({"no_rope_layers"});
  const auto layers = static_cast<std::size_t>(c.layers);
  if (given != nullptr && (!given->is_array() || given->size() < layers))
    return k.unsupported(str("no_rope_layers is not a list of ", layers));
  for (std::size_t i = 0; i < layers; ++i) {
    const std::int64_t every = c.no_rope_every;
    const json turned =
        given != nullptr ? (*given)[i] : json((static_cast<std::int64_t>(i) + 1) % every != 0 ? 1 : 0);
    if (turned != 0 && turned != 1)
      return k.unsupported(str("no_rope_layers has ", turned.dump().substr(0, 80)));
    c.rope_layers.push_back(turned == 1);
  }
}

void read_biases(Keys& k, DecoderConfig& c) {
  const HfFamily& family = detail::family_of(c).hf;
  if (family.attention_bias != HfKey::ignored) {
    c.qkv_bias = k.flag("attention_bias", c.qkv_bias);
    c.out_bias =
        family.out_bias_key != nullptr ? k.flag(family.out_bias_key, false) : c.qkv_bias && family.out_bias;
  }
  if (family.mlp_bias != HfKey::ignored) c.mlp_bias = k.flag("mlp_bias", false);
}

void read_gemma(Keys& k, DecoderConfig& c) {
  c.query_scalar = k.positive({"query_pre_attn_scalar"}, 256.0);
  const auto cap = [&](const char* name, float otherwise) {
    return k.has(name) && k.find({name}) == nullptr     ? 0.0f
           : otherwise > 0 || k.find({name}) != nullptr ? k.positive({name}, static_cast<double>(otherwise))
                                                        : 0.0f;
  };
  // Gemma 3's configs may have a cap of scores, from Gemma 2's, which no implementation applies.
  if (c.score_softcap > 0) c.score_softcap = cap("attn_logit_softcapping", c.score_softcap);
  c.logit_softcap = cap("final_logit_softcapping", c.logit_softcap);
  k.must_be("use_bidirectional_attention", false, false);
}

Activation activation_of(const DecoderConfig& c) {
  if (c.mlp == DecoderConfig::Mlp::geglu) return {kTanhGelu, "gelu_pytorch_tanh"};
  if (c.mlp == DecoderConfig::Mlp::relu2) return {kRelu2, "relu2"};
  return {kSilu, "silu"};
}

void read_factors(Keys& k, DecoderConfig& c) {
  c.embedding_factor = k.positive({"embedding_multiplier"}, 1.0);
  c.residual_factor = k.positive({"residual_multiplier"}, 1.0);
  c.score_factor = k.positive({"attention_multiplier"}, 1.0);
  c.logit_divisor = k.positive({"logits_scaling"}, 1.0);
}

constexpr std::int64_t kMaxConfigLayers = 10000;

/// The inner width of MLPs; Granite 4's is that of its experts, see read_experts().
std::int64_t read_width(Keys& k, const HfFamily& family) {
  using detail::HfExperts;
  if (family.experts == HfExperts::qwen3_5) return k.integer({"moe_intermediate_size"});
  if (family.experts == HfExperts::granite) return k.integer({"intermediate_size"}, 11008);
  if (family.mixers == detail::HfMixers::lfm2 && family.experts == HfExperts::none)
    return k.integer({"block_ff_dim", "intermediate_size"});
  return k.integer({"intermediate_size"});
}

void read_llama(Keys& k, DecoderConfig& c) {
  const HfFamily& family = detail::family_of(c).hf;
  c.layers = k.integer({"num_hidden_layers"});
  c.hidden = k.integer({"hidden_size"});
  c.heads = k.integer({"num_attention_heads"});
  c.kv_heads = k.integer({"num_key_value_heads"}, c.heads);
  if (family.mixers != detail::HfMixers::latent) c.head_dim = k.integer({"head_dim"}, family.head_dim);
  c.ffn = read_width(k, family);
  c.positions = k.integer({"max_position_embeddings"}, 0);
  c.norm_eps = k.positive({family.norm_eps_key},
                          family.norm_eps > 0 ? family.norm_eps : static_cast<double>(c.norm_eps));
  if (!family.is_gemma4) read_rope(k, c);
  if (c.layers <= kMaxConfigLayers && family.is_gemma4) detail::read_gemma4(k, c);
  if (c.layers <= kMaxConfigLayers &&
      !family.is_gemma4) {  // else validate() fails before anything per layer is allocated
    read_rope_layers(k, c);
    read_window(k, c, family.windows);
    if (family.windows == HfWindows::with_rope) set_rope_layers(c);
    detail::read_experts(k, c);
    detail::read_mixers(k, c);
  }
  const char* const act =
      family.is_gemma || family.is_gemma4 ? "hidden_activation" : family.act_key;  // files may have both
  const Activation is = activation_of(c);
  k.must_be_one_of(act, k.text({act}, is.written), is.known);
  read_biases(k, c);
  if (family.qk_norm_key && k.flag("use_qk_norm", false)) c.qk_norm = DecoderConfig::QkNorm::heads;
  if (family.is_gemma) read_gemma(k, c);
  if (family.has_factors) read_factors(k, c);
}

void read_family(Keys& k, DecoderConfig& c) {
  using enum detail::HfKeys;
  switch (detail::family_of(c).hf.keys) {
    case gpt2:
      return read_gpt2(k, c);
    case opt:
      return read_opt(k, c);
    case bloom:
      return read_bloom(k, c);
    case llama:
      return read_llama(k, c);
  }
}

// Whether the architecture is a model with one score for a sequence.
Result<bool> is_classifier(const json& root) {
  const auto architectures = root.find("architectures");
  if (architectures == root.end() || !architectures->is_array() || architectures->empty() ||
      !architectures->front().is_string())
    return false;
  const std::string name = architectures->front().get<std::string>();
  if (!name.ends_with("ForSequenceClassification")) return false;
  const auto labels = root.find("id2label");
  const std::size_t n = labels != root.end() && labels->is_object() ? labels->size() : 2;  // as transformers
  if (n == 1) return true;
  return Status::error(Code::unsupported, str(name, " has ", n, " labels; a reward model has 1"));
}

}  // namespace

kernels::WeightFormat quantization_in_hf_config(const std::string& text) {
  using enum kernels::WeightFormat;
  const auto parsed = detail::parse_config_json(text);
  if (!parsed.has_value() || !parsed->is_object()) return full;
  const nlohmann::json root = detail::text_config_of(*parsed);
  if (!root.contains("quantization_config")) return full;
  const nlohmann::json& given = root.at("quantization_config");
  if (!given.is_object()) return full;
  detail::Keys keys(given);
  const std::string method = keys.text({"quant_method"}, "");
  if (method == "fp8") return fp8_block;
  if (method == "mxfp4") return mxfp4;
  if (method == "compressed-tensors") return int4;
  if (keys.flag("load_in_8bit", false)) return int8;
  if (!keys.flag("load_in_4bit", false)) return full;
  // BLOOM's rows are in another order here, which groups of scales would not survive; their values do.
  const detail::Family* const family = detail::find_family(detail::Keys(root).text({"model_type"}, ""));
  const bool reorders = family != nullptr && (family->hf.names.qkv_by_head || family->hf.names.delta_by_head);
  return keys.flag("bnb_4bit_use_double_quant", false) && !reorders ? nf4_dq : nf4;
}

Result<DecoderConfig> decoder_from_hf_config(const std::string& text) {
  STRATA_TRY_ASSIGN(const json whole, detail::parse_config_json(text));
  if (!whole.is_object()) return Status::error(Code::corrupt, "it is not an object");
  const json root = detail::with_layer_types(detail::text_config_of(whole));
  Keys keys(root);
  const std::string family = keys.text({"model_type"}, "");
  auto config = decoder_for_family(family);
  if (!config) {
    std::string known;
    for (const std::string_view name : decoder_families()) known += str(known.empty() ? "" : ", ", name);
    return Status::error(Code::unsupported,
                         str("model_type is '", family, "'; the supported types are ", known));
  }
  DecoderConfig& c = *config;
  c.vocab = keys.integer({"vocab_size"});
  read_family(keys, c);
  c.tied_head = keys.flag("tie_word_embeddings", c.tied_head);
  STRATA_TRY_ASSIGN(c.scores, is_classifier(root));
  detail::read_quantization(keys, c);
  STRATA_TRY(keys.status());
  DecoderConfig trial = c;  // the rest must be valid for any sequence length
  trial.seq = 1;
  STRATA_TRY(validate(trial));
  return c;
}

}  // namespace strata
