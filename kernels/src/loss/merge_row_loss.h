#pragma once

#include <cstdint>

#include <strata/simd/math/elementary.h>
#include <strata/simd/math/host_device.h>

namespace strata::kernels::detail {

/// The log-sum-exp and the loss of one row from those of `parts` parts of the vocabulary: part p's
/// log-sum-exp is stats[2 p * stride], and its target's logit, or 0, is stats[(2 p + 1) * stride].
STRATA_HD void merge_row_loss(const float* stats, std::int64_t parts, std::int64_t stride,
                              std::int32_t target, float& lse, float& loss) {
  float most = stats[0], logit = 0.0f;
  for (std::int64_t p = 0; p < parts; ++p) {
    const float of_part = stats[2 * p * stride];
    most = of_part > most ? of_part : most;
    logit = logit + stats[(2 * p + 1) * stride];
  }
  float sum = 0.0f;
  for (std::int64_t p = 0; p < parts; ++p) sum = sum + simd::exp_of(stats[2 * p * stride] - most);
  lse = most + static_cast<float>(simd::log_of(static_cast<double>(sum)));
  loss = target >= 0 ? lse - logit : 0.0f;
}

}  // namespace strata::kernels::detail
