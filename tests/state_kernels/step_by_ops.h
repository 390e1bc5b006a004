#pragma once

#include <span>

#include <strata/simd/norm.h>
#include <strata/runtime/status.h>
#include <strata/state_kernels/update.h>

namespace strata::test {

/// lamb's norm partials and trust ratio of a tensor between its passes, in memory that both the ops and the
/// host can access.
struct LambNorms {
  double* master_partials = nullptr;
  double* direction_partials = nullptr;
  float* trust = nullptr;
};

/// Runs one whole step of any optimizer by ops; the step is complete when this returns.
inline void step_by_ops(Backend& backend, Stream& stream, const cpuopt::OptimizerParams& params,
                        const cpuopt::UpdateBlock& block, std::int64_t n, cpuopt::RoundingNoise noise,
                        const LambNorms& norms) {
  const cpuopt::UpdateStep step = cpuopt::make_update_step(params);
  must(state_kernels::update_async(backend, stream, {step, block, n, noise}));
  if (params.optimizer == cpuopt::Optimizer::lamb) {
    const auto count = static_cast<std::size_t>(simd::norm_partial_count(n));
    must(state_kernels::lamb_partials_async(
        backend, stream, {step, block, n, norms.master_partials, norms.direction_partials}));
    must(backend.synchronize(stream));
    *norms.trust =
        cpuopt::lamb_trust_ratio(simd::tree_sum(std::span<const double>(norms.master_partials, count)),
                                 simd::tree_sum(std::span<const double>(norms.direction_partials, count)));
    must(state_kernels::lamb_apply_async(backend, stream, {step, block, n, norms.trust}));
  }
  must(backend.synchronize(stream));
}

}  // namespace strata::test
