#pragma once

#include <strata/graph/program.h>
#include <strata/model/decoder_config.h>

namespace strata::test {

/// Gives a decoder of a family of mixtures few and small experts, and one of them a dense layer.
inline void set_tiny_experts(DecoderConfig& config) {
  const FamilyLimits limits = family_limits(config.family);
  if (!limits.experts && !limits.some_experts) return;
  config.experts.n = 6;
  config.experts.per_token = 2;
  if (limits.expert_ffn) config.experts.ffn = 24;
  if (config.experts.shared_gate) config.experts.shared_ffn = config.ffn;
  if (config.experts.shared_plain)
    config.experts.shared_ffn = limits.any_shared_ffn ? config.ffn : 2 * config.experts.ffn;
  if (config.experts.dense_layers > 1) config.experts.dense_layers = 1;
  if (config.experts.rule.score == kernels::RouterRule::Score::sigmoid && config.family != "lfm2_moe") {
    config.experts.rule.groups = 3;
    config.experts.rule.top_groups = 2;
  }
  if (config.family != "qwen3_moe") return;
  config.experts.layers.assign(static_cast<std::size_t>(config.layers), true);
  config.experts.layers.front() = false;
}

/// Whether a parameter is the matrix of a linear layer in a block: experts have stacks of matrices, and
/// routers are no such layers.
inline bool is_linear_matrix(const ParamInfo& param) {
  return param.name.starts_with("layers.") && param.name.ends_with(".weight") && param.shape.rank == 2 &&
         !param.name.ends_with("conv.weight") && !param.name.ends_with(".router.weight") &&
         !param.name.ends_with(".shared_gate.weight");
}

}  // namespace strata::test
