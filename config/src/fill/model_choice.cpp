#include <strata/config/model_choice.h>

#include <algorithm>
#include <cstdint>

#include <strata/config/train_config.h>
#include <strata/runtime/assert.h>
#include <strata/config/objective.h>

namespace strata {

namespace {

// A mixture of experts that states nothing else has eight experts, two of which compute a token.
void set_experts(DecoderConfig& decoder, const TrainConfig::Model& m) {
  const FamilyLimits limits = family_limits(m.family);
  const bool has_experts = limits.experts || (limits.some_experts && m.experts.value_or(0) > 0);
  ExpertsConfig& e = decoder.experts;
  e.n = m.experts.value_or(has_experts ? 8 : 0);
  e.per_token =
      m.experts_per_token.value_or(has_experts ? static_cast<int>(std::min<std::int64_t>(2, e.n)) : 0);
  e.ffn = m.expert_ffn.value_or(has_experts && e.n > 0 ? m.ffn : 0);
  e.shared_ffn = m.shared_ffn.value_or(e.n == 0 ? 0 : e.shared_gate ? m.ffn : e.shared_plain ? e.ffn : 0);
}

}  // namespace

DecoderConfig decoder_config(const TrainConfig& config) {
  const TrainConfig::Model& m = config.model;
  if (m.loaded) {
    DecoderConfig decoder = *m.loaded;
    decoder.seq = m.seq;
    decoder.scores = objective_of(config).scores;
    return decoder;
  }
  DecoderConfig decoder = decoder_for_family(m.family).value();  // the schema allows known families only
  decoder.layers = m.layers;
  decoder.hidden = m.hidden;
  decoder.heads = m.heads;
  decoder.kv_heads = m.kv_heads.value_or(0);
  decoder.head_dim = m.head_dim.value_or(0);
  decoder.ffn = m.ffn;
  set_experts(decoder, m);
  decoder.vocab = m.vocab;
  decoder.seq = m.seq;
  decoder.scores = objective_of(config).scores;
  return decoder;
}

RouterLosses router_losses(const TrainConfig& config) noexcept {
  return {.aux_coef = static_cast<float>(config.train.router_aux),
          .z_coef = static_cast<float>(config.train.router_z)};
}

DType compute_dtype(const TrainConfig& config) {
  return config.train.dtype == "bf16" ? DType::bf16 : config.train.dtype == "f16" ? DType::f16 : DType::f32;
}

}  // namespace strata
