#include <strata/simd/simd.h>

#include "row_common.h"
#include "row_table.h"

namespace strata::kernels::STRATA_ISA {
namespace {

using simd::exp_of;
using simd::log_of;
using simd::tanh_of;

float attention_softmax(float* x, float scale, std::int64_t n) {
  const float row_max = reduce_row_max(x, n) * scale;  // scale > 0, so the maximum stays the maximum
  const f32x16 factor(scale), top(row_max);
  f32x16 sum(0.0f);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    f32x16 e = exp_of(load_lanes(x + i, lanes) * factor - top);
    store_lanes(x + i, e, lanes);
    sum = sum + (lanes < 16 ? e.keep_first(lanes) : e);
  });
  const float total = reduce_add(sum);
  const f32x16 inverse(1.0f / total);
  for_each_16(n, [&](std::int64_t i, int lanes)
                     STRATA_LANES_INLINE { store_lanes(x + i, load_lanes(x + i, lanes) * inverse, lanes); });
  return static_cast<float>(static_cast<double>(row_max) + log_of(static_cast<double>(total)));
}

// The sum that is subtracted from dp is computed from the same p and dp, so that a row of score gradients
// adds up to zero. Mathematically it is also the dot product of the output and its gradient, but a 16-bit
// output is too inexact for that: the gradient of the keys' bias is the sum of such rows, which is zero.
float attention_softmax_backward(float* x, float* dp, float lse, float scale, float dp_scale,
                                 const float* given, std::int64_t n) {
  const f32x16 factor(scale), dp_factor(dp_scale), shift(lse);
  f32x16 sum(0.0f);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 p = exp_of(load_lanes(x + i, lanes) * factor - shift);
    store_lanes(x + i, p, lanes);
    sum = sum + (lanes < 16 ? p.keep_first(lanes) : p) * load_lanes(dp + i, lanes);
  });
  const float value = given == nullptr ? reduce_add(sum) : *given;
  const f32x16 center(value);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    store_lanes(dp + i, load_lanes(x + i, lanes) * (load_lanes(dp + i, lanes) - center) * dp_factor, lanes);
  });
  return value;
}

void softcap(float* x, float scale, float cap, std::int64_t n) {
  const f32x16 factor(scale / cap), cap_lanes(cap);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    store_lanes(x + i, tanh_of(load_lanes(x + i, lanes) * factor) * cap_lanes, lanes);
  });
}

// The derivative needs both the tanh of a score and its probability, but x has space for only one of them, so
// both are computed twice from the score.
float softcap_softmax_backward(float* x, float* dp, float lse, float scale, float cap, const float* given,
                               std::int64_t n) {
  const f32x16 factor(scale / cap), cap_lanes(cap), shift(lse), dp_factor(scale), one(1.0f);
  f32x16 sum(0.0f);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 p = exp_of(tanh_of(load_lanes(x + i, lanes) * factor) * cap_lanes - shift);
    sum = sum + (lanes < 16 ? p.keep_first(lanes) : p) * load_lanes(dp + i, lanes);
  });
  const float value = given == nullptr ? reduce_add(sum) : *given;
  const f32x16 center(value);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 t = tanh_of(load_lanes(x + i, lanes) * factor), p = exp_of(t * cap_lanes - shift);
    store_lanes(x + i, p, lanes);
    store_lanes(dp + i, p * ((load_lanes(dp + i, lanes) - center) * (one - t * t)) * dp_factor, lanes);
  });
  return value;
}

void capped_softmax_from_lse(float* x, float lse, float scale, float cap, std::int64_t n) {
  const f32x16 shift(lse), factor(scale), inverse(1.0f / cap), one(1.0f);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 v = load_lanes(x + i, lanes), t = v * inverse;
    store_lanes(x + i, exp_of(v - shift) * factor * (one - t * t), lanes);
  });
}

// Sums in runs of 4096, as log_sum_exp() does.
float entropy(const float* x, float lse, std::int64_t n) {
  const f32x16 shift(lse);
  double total = 0.0;
  for (std::int64_t at = 0; at < n; at += 4096) {
    const std::int64_t length = n - at < 4096 ? n - at : 4096;
    f32x16 sum(0.0f);
    for_each_16(length, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
      const f32x16 v = load_lanes(x + at + i, lanes) - shift, term = exp_of(v) * v;
      sum = sum + (lanes < 16 ? term.keep_first(lanes) : term);
    });
    total += static_cast<double>(reduce_add(sum));
  }
  return static_cast<float>(0.0 - total);
}

void scale_add(float* x, float scale, const float* bias, std::int64_t n) {
  const f32x16 factor(scale);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    store_lanes(x + i, load_lanes(x + i, lanes) * factor + load_lanes(bias + i, lanes), lanes);
  });
}

}  // namespace

extern const detail::RowTable row_kernels = {&accumulate_row<float>,
                                             &attention_softmax,
                                             &attention_softmax_backward,
                                             &softcap,
                                             &softcap_softmax_backward,
                                             &capped_softmax_from_lse,
                                             &entropy,
                                             &scale_add};

}  // namespace strata::kernels::STRATA_ISA
