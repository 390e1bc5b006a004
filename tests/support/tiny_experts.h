#pragma once

#include <strata/model/decoder_config.h>

namespace strata::test {

/// Gives a decoder of a family of mixtures few and small experts, and one of them a dense layer.
inline void set_tiny_experts(DecoderConfig& config) {
  const FamilyLimits limits = family_limits(config.family);
  if (!limits.experts) return;
  config.experts.n = 6;
  config.experts.per_token = 2;
  if (limits.expert_ffn) config.experts.ffn = 24;
  if (config.experts.shared_gate) config.experts.shared_ffn = 40;
  if (config.family != "qwen3_moe") return;
  config.experts.layers.assign(static_cast<std::size_t>(config.layers), true);
  config.experts.layers.front() = false;
}

}  // namespace strata::test
