#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include <strata/simd/math/elementary.h>
#include <strata/simd/norm.h>
#include <strata/dispatch/rows.h>
#include <strata/runtime/assert.h>
#include <strata/runtime/tensor_view.h>

#include "row_table.h"
#include "simd_table.h"

namespace strata::kernels::detail {

/// The divisor of the sum of `rows` losses: `given`, or the number of targets that are not ignored.
inline double loss_divisor(const TensorView& given, const std::int32_t* targets, std::int64_t rows) {
  if (dispatch::is_present(given)) return static_cast<double>(*given.as<float>());
  return static_cast<double>(
      std::count_if(targets, targets + rows, [](std::int32_t target) { return target >= 0; }));
}
inline float mean_loss(const float* losses, std::int64_t rows, double divisor) {
  const double sum = simd::tree_sum(std::span<const float>(losses, static_cast<std::size_t>(rows)));
  return divisor > 0 ? static_cast<float>(sum / divisor) : 0.0f;
}

/// Returns the loss of one row and writes its log-sum-exp to `lse`.
template <class T>
float row_loss(const T* row, std::int64_t vocab, std::int32_t target, float& lse) {
  STRATA_DCHECK(target < vocab, "a target is ", target, " of ", vocab);
  lse = simd_table<T>().log_sum_exp(row, vocab);
  return target >= 0 ? lse - to_f32(row[target]) : 0.0f;
}
/// out = (softmax(row) - onehot(target)) * scale; zero for a target below 0. `out` may be `row`.
template <class T>
void row_gradient(const T* row, std::int64_t vocab, std::int32_t target, float lse, float scale, T* out) {
  STRATA_DCHECK(target < vocab, "a target is ", target, " of ", vocab);
  if (target < 0) {
    std::fill_n(out, vocab, from_f32<T>(0.0f));
    return;
  }
  // The target's entry is computed separately, so that it is also rounded only once.
  const float at_target = simd::exp_of(to_f32(row[target]) - lse) * scale - scale;
  simd_table<T>().softmax_from_lse(row, out, lse, scale, vocab);
  out[target] = from_f32<T>(at_target);
}

/// The same in place for logits after a soft cap: the gradient with respect to the logits before the cap.
inline void capped_row_gradient(float* row, std::int64_t vocab, std::int32_t target, float lse, float scale,
                                float cap) {
  if (target < 0) {
    std::fill_n(row, vocab, 0.0f);
    return;
  }
  const float t = row[target] * (1.0f / cap);
  const float at_target = (simd::exp_of(row[target] - lse) * scale - scale) * (1.0f - t * t);
  row_table().capped_softmax_from_lse(row, lse, scale, cap, vocab);
  row[target] = at_target;
}
/// The same in place for logits with a soft cap, or with 0 for none.
inline void logits_gradient(float* row, std::int64_t vocab, std::int32_t target, float lse, float scale,
                            float softcap) {
  if (softcap > 0)
    capped_row_gradient(row, vocab, target, lse, scale, softcap);
  else
    row_gradient(row, vocab, target, lse, scale, row);
}

}  // namespace strata::kernels::detail
