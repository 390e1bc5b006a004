#include "gguf/architecture.h"

#include <algorithm>
#include <cmath>

#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

using Scaling = RopeFrequencies::Scaling;

class GgufProblems {
 public:
  void need(bool ok, const std::string& what) {
    if (!ok) text_ += str(text_.empty() ? "" : "\n", what);
  }
  Status status(std::string_view name) const {
    if (text_.empty()) return {};
    return Status::error(Code::unsupported, str("llama.cpp's ", name, " cannot compute this model: ", text_,
                                                "\nexport it as a Hugging Face folder: --format hf"));
  }

 private:
  std::string text_;
};

bool has_rope(const GgufArchitecture& a, std::size_t layer) {
  return a.no_rope_every == 0 || (static_cast<std::int64_t>(layer) + 1) % a.no_rope_every != 0;
}

void check_attention(const GgufArchitecture& a, const DecoderConfig& c, GgufProblems& problems) {
  problems.need(!a.square_heads || c.heads * c.head_dim == c.hidden,
                str(c.heads, " heads of ", c.head_dim, " are not the hidden size, ", c.hidden));
  const float scalar = c.query_scalar > 0 ? c.query_scalar : static_cast<float>(c.head_dim);
  const std::int64_t divisor = gguf_divisor_of_scores(a, c);
  problems.need(scalar == static_cast<float>(divisor),
                str("scores are divided by the square root of ", scalar, ", there by that of ", divisor));
  problems.need(a.score_softcap == (c.score_softcap > 0),
                str("attention scores have a softcap of ", c.score_softcap,
                    a.score_softcap ? ", and there must be one" : ", which it does not have"));
  problems.need(!a.equal_heads || c.kv_heads == c.heads,
                str(c.kv_heads, " heads of keys and values for ", c.heads, " of queries, there as many"));
  for (std::size_t i = 0; i < c.sliding.size() && a.full_every > 0; ++i) {
    const bool slides = (static_cast<std::int64_t>(i) + 1) % a.full_every != 0;
    problems.need(c.sliding[i] == slides,
                  str("layer ", i, c.sliding[i] ? " has a sliding window" : " has no sliding window",
                      ", and there ", slides ? "it has one" : "it has none"));
  }
  for (std::size_t i = 0; i < c.rope_layers.size(); ++i)
    problems.need(c.position != DecoderConfig::Position::rope || c.rope_layers[i] == has_rope(a, i),
                  str("layer ", i, c.rope_layers[i] ? " has RoPE" : " has no RoPE",
                      "; only every fourth layer of smollm3 has none"));
}

void check_rope(const GgufArchitecture& a, const DecoderConfig& c, GgufProblems& problems) {
  const RopeFrequencies& f = c.frequencies;
  problems.need(f.scaling != Scaling::llama3 || a.rope_factors,
                "its RoPE has the scaling llama3, which is only known in llama");
  problems.need(f.scaling != Scaling::yarn || a.yarn, "its RoPE has the scaling yarn");
  const bool is_usual = f.truncate != a.yarn_unrounded && f.beta_fast == 32.0f && f.beta_slow == 1.0f;
  problems.need(f.scaling != Scaling::yarn || is_usual,
                str("YaRN has beta_fast ", f.beta_fast, ", beta_slow ", f.beta_slow, " and truncate ",
                    f.truncate, ", there always 32, 1 and ", a.yarn_unrounded ? "false" : "true"));
  problems.need(!c.sliding_frequencies || c.sliding_frequencies->scaling == Scaling::none,
                "the RoPE of sliding layers is scaled");
}

void check_experts_of_gguf(const GgufArchitecture& a, const DecoderConfig& c, GgufProblems& problems) {
  const ExpertsConfig& e = c.experts;
  if (e.n == 0) return;
  const auto answer = [](bool is) { return is ? "true" : "false"; };
  const auto dense = static_cast<std::int64_t>(std::find(e.layers.begin(), e.layers.end(), true) -
                                               e.layers.begin());  // layers before the first
  for (std::size_t i = 0; i < e.layers.size(); ++i)
    problems.need(e.layers[i] || (a.experts.rule_keys && static_cast<std::int64_t>(i) < dense),
                  str("the MLP of layer ", i, " is no mixture of experts",
                      a.experts.rule_keys ? ", and it is not one of the first ones" : ""));
  problems.need(a.experts.rule_keys || e.rule.renormalize == a.experts.renormalizes,
                str("norm_topk_prob is ", answer(e.rule.renormalize), ", there it is always ",
                    answer(a.experts.renormalizes)));
  problems.need(e.rule.groups == 1 || (e.rule.top_groups < e.rule.groups && e.rule.groups < e.n),
                str("the router chooses among ", e.rule.top_groups, " of ", e.rule.groups, " groups of ", e.n,
                    " experts, there always among fewer groups, which have several experts"));
  problems.need(e.gate_limit == 0 || (e.gate_limit == 7.0f && e.gate_alpha == 1.702f),
                str("the gates of experts have swiglu_limit ", e.gate_limit, " and swiglu_alpha ",
                    e.gate_alpha, ", there always 7 and 1.702"));
}

void check_parts(const GgufArchitecture& a, const DecoderConfig& c, GgufProblems& problems) {
  problems.need(!c.out_bias || a.out_biases, "the output of the attention has a bias (attention_bias)");
  problems.need(!a.attention_biases || (c.qkv_bias && c.out_bias),
                "the attention has no biases (attention_bias), and there it must have them");
  problems.need(!c.mlp_bias || a.out_biases, "the MLP has biases (mlp_bias)");
  problems.need(c.tied_head || !a.head_always_tied, "its head is not tied to the token embedding");
}

void add_rope(const std::string& prefix, const DecoderConfig& c, GgufMetadata& metadata) {
  const RopeFrequencies& f = c.frequencies;
  metadata.add_u32(prefix + "rope.dimension_count", c.rotary_dim);
  metadata.add_f32(prefix + "rope.freq_base", f.theta);
  if (c.sliding_frequencies) metadata.add_f32(prefix + "rope.freq_base_swa", c.sliding_frequencies->theta);
  if (f.scaling != Scaling::linear && f.scaling != Scaling::yarn) return;  // llama3 is in rope_freqs.weight
  metadata.add_text(prefix + "rope.scaling.type", f.scaling == Scaling::linear ? "linear" : "yarn");
  metadata.add_f32(prefix + "rope.scaling.factor", f.factor);
  if (f.scaling == Scaling::linear) return;
  metadata.add_u32(prefix + "rope.scaling.original_context_length",
                   static_cast<std::int64_t>(f.original_positions));
  // llama.cpp multiplies by the factor of the paper itself (Peng et al. 2023, section 3.4).
  const float grown = f.factor > 1 ? 0.1f * std::log(f.factor) + 1.0f : 1.0f;
  metadata.add_f32(prefix + "rope.scaling.attn_factor", f.attention_factor / grown);
}

void add_experts(const std::string& prefix, const GgufExperts& keys, const ExpertsConfig& e,
                 GgufMetadata& metadata) {
  metadata.add_u32(prefix + "expert_count", e.n);
  metadata.add_u32(prefix + "expert_used_count", e.per_token);
  if (keys.ffn_key) metadata.add_u32(prefix + "expert_feed_forward_length", e.ffn);
  if (e.shared_gate) metadata.add_u32(prefix + "expert_shared_feed_forward_length", e.shared_ffn);
  if (!keys.rule_keys) return;
  metadata.add_u32(prefix + "expert_shared_count", e.shared_ffn / e.ffn);
  metadata.add_u32(prefix + "leading_dense_block_count",
                   std::find(e.layers.begin(), e.layers.end(), true) - e.layers.begin());
  metadata.add_u32(prefix + "expert_gating_func", kGgufSigmoid);
  metadata.add_bool(prefix + "expert_weights_norm", e.rule.renormalize);
  metadata.add_f32(prefix + "expert_weights_scale", e.rule.scale);
  metadata.add_u32(prefix + "expert_group_count", e.rule.groups);
  metadata.add_u32(prefix + "expert_group_used_count", e.rule.top_groups);
}

bool slides_somewhere(const DecoderConfig& c) {
  return std::count(c.sliding.begin(), c.sliding.end(), true) > 0;
}

}  // namespace

Result<GgufArchitecture> gguf_architecture(const DecoderConfig& config) {
  if (config.scores)
    return Status::error(
        Code::unsupported,
        "a reward model has scores, and llama.cpp computes logits: export it as --format hf");
  const Family* const family = find_family(config.family);
  if (family == nullptr || family->gguf.name.empty())
    return Status::error(Code::unsupported,
                         str("llama.cpp has no architecture for the family ", config.family,
                             ": export it as a Hugging Face folder, --format hf"));
  const DecoderConfig c = with_derived_sizes(config);
  GgufProblems problems;
  const GgufArchitecture& a = family->gguf;
  check_attention(a, c, problems);
  check_rope(a, c, problems);
  check_parts(a, c, problems);
  check_experts_of_gguf(a, c, problems);
  STRATA_TRY(problems.status(a.name));
  return a;
}

const Family* family_of_gguf(std::string_view architecture, bool has_experts) {
  const Family* first = nullptr;
  for (const Family& family : families()) {
    if (architecture.empty() || family.gguf.name != architecture) continue;
    if (family.gguf.experts.any == has_experts) return &family;
    if (first == nullptr) first = &family;
  }
  return first;
}

std::string gguf_architecture_names() {
  std::string all;
  for (const Family& family : families())
    if (family_of_gguf(family.gguf.name, false) == &family)
      all += str(all.empty() ? "" : ", ", family.gguf.name);
  return all;
}

std::int64_t gguf_divisor_of_scores(const GgufArchitecture& a, const DecoderConfig& c) {
  return a.layers_by_hidden > 0 && c.layers == a.layers_by_hidden ? c.hidden / c.heads : c.head_dim;
}

std::int64_t gguf_context(const GgufArchitecture& architecture, const DecoderConfig& config) {
  const bool ignored = !architecture.slides && slides_somewhere(config);
  return ignored ? std::min(config.window, config.positions) : config.positions;
}

void add_architecture(const GgufArchitecture& architecture, const DecoderConfig& c, GgufMetadata& metadata) {
  const std::string prefix = str(architecture.name, ".");
  metadata.add_u32(prefix + "context_length", gguf_context(architecture, c));
  metadata.add_u32(prefix + "embedding_length", c.hidden);
  metadata.add_u32(prefix + "block_count", c.layers);
  metadata.add_u32(prefix + "feed_forward_length", c.ffn);
  metadata.add_u32(prefix + "attention.head_count", c.heads);
  metadata.add_u32(prefix + "attention.head_count_kv", c.kv_heads);
  metadata.add_u32(prefix + "attention.key_length", c.head_dim);
  metadata.add_u32(prefix + "attention.value_length", c.head_dim);
  metadata.add_f32(prefix + (c.norm == DecoderConfig::Norm::rms ? "attention.layer_norm_rms_epsilon"
                                                                : "attention.layer_norm_epsilon"),
                   c.norm_eps);
  metadata.add_u32(prefix + "vocab_size", c.vocab);
  if (c.position == DecoderConfig::Position::rope) add_rope(prefix, c, metadata);
  if (architecture.slides || architecture.window_key)
    metadata.add_u32(prefix + "attention.sliding_window", c.window);
  if (architecture.slides && architecture.full_every == 0)
    metadata.add_bools(prefix + "attention.sliding_window_pattern", c.sliding);
  if (c.score_softcap > 0) metadata.add_f32(prefix + "attn_logit_softcapping", c.score_softcap);
  if (architecture.factors) {
    metadata.add_f32(prefix + "embedding_scale", c.embedding_factor);
    metadata.add_f32(prefix + "residual_scale", c.residual_factor);
    metadata.add_f32(prefix + "attention.scale", c.score_factor);
    metadata.add_f32(prefix + "logit_scale", c.logit_divisor);
  }
  if (c.experts.n > 0) add_experts(prefix, architecture.experts, c.experts, metadata);
  // Without the key llama.cpp takes Gemma 2's own value.
  if (architecture.logit_softcap) metadata.add_f32(prefix + "final_logit_softcapping", c.logit_softcap);
}

}  // namespace strata::detail
