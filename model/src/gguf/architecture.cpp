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
  problems.need(f.scaling != Scaling::yarn || (f.truncate && f.beta_fast == 32.0f && f.beta_slow == 1.0f),
                str("YaRN has beta_fast ", f.beta_fast, ", beta_slow ", f.beta_slow, " and truncate ",
                    f.truncate, ", there always 32, 1 and true"));
  problems.need(!c.sliding_frequencies || c.sliding_frequencies->scaling == Scaling::none,
                "the RoPE of sliding layers is scaled");
}

void check_parts(const GgufArchitecture& a, const DecoderConfig& c, GgufProblems& problems) {
  problems.need(!c.out_bias || a.out_biases, "the output of the attention has a bias (attention_bias)");
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
  STRATA_TRY(problems.status(a.name));
  return a;
}

const Family* family_of_gguf(std::string_view architecture) {
  for (const Family& family : families())
    if (!architecture.empty() && family.gguf.name == architecture) return &family;
  return nullptr;
}

std::string gguf_architecture_names() {
  std::string all;
  for (const Family& family : families())
    if (family_of_gguf(family.gguf.name) == &family) all += str(all.empty() ? "" : ", ", family.gguf.name);
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
  if (architecture.slides) metadata.add_bools(prefix + "attention.sliding_window_pattern", c.sliding);
  if (c.score_softcap > 0) metadata.add_f32(prefix + "attn_logit_softcapping", c.score_softcap);
  if (architecture.factors) {
    metadata.add_f32(prefix + "embedding_scale", c.embedding_factor);
    metadata.add_f32(prefix + "residual_scale", c.residual_factor);
    metadata.add_f32(prefix + "attention.scale", c.score_factor);
    metadata.add_f32(prefix + "logit_scale", c.logit_divisor);
  }
  // Without the key llama.cpp takes Gemma 2's own value.
  if (architecture.slides) metadata.add_f32(prefix + "final_logit_softcapping", c.logit_softcap);
}

}  // namespace strata::detail
