#include <strata/cpuopt/simd.h>

#include "opt_table.h"

namespace strata::cpuopt::STRATA_ISA {
namespace {

constexpr std::int64_t kLeafElems = 4096;

void adamw(const AdamWScalars<float>& s, float factor, float* p, const float* g, float* m, float* v,
           std::int64_t n) {
  const AdamWScalars<f32x16> wide = {
      f32x16(s.beta1), f32x16(s.one_minus_beta1), f32x16(s.beta2),     f32x16(s.one_minus_beta2),
      f32x16(s.eps),   f32x16(s.decay),           f32x16(s.step_size), f32x16(s.inv_sqrt_bias2)};
  const f32x16 unscale(factor);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    f32x16 mi = load_lanes(m + i, lanes);
    f32x16 vi = load_lanes(v + i, lanes);
    const f32x16 pi =
        adamw_update(load_lanes(p + i, lanes), load_lanes(g + i, lanes) * unscale, mi, vi, wide);
    store_lanes(p + i, pi, lanes);
    store_lanes(m + i, mi, lanes);
    store_lanes(v + i, vi, lanes);
  });
}

void accumulate(float* acc, const float* g, std::int64_t n) {
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    store_lanes(acc + i, load_lanes(acc + i, lanes) + load_lanes(g + i, lanes), lanes);
  });
}

// Plain arrays: 16 f64 lanes are fixed by the loop, and the compiler picks the registers. The square of an
// f32 is exact in f64, so only the additions round.
double leaf(const float* x, std::int64_t n) {
  double lanes[16] = {};
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (int j = 0; j < 16; ++j) lanes[j] += static_cast<double>(x[i + j]) * static_cast<double>(x[i + j]);
  for (int j = 0; i + j < n; ++j) lanes[j] += static_cast<double>(x[i + j]) * static_cast<double>(x[i + j]);
  for (int width = 8; width > 0; width /= 2)
    for (int j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  return lanes[0];
}

void square_sum_leaves(const float* x, std::int64_t n, double* leaves) {
  for (std::int64_t i = 0; i < n; i += kLeafElems, ++leaves)
    *leaves = leaf(x + i, n - i < kLeafElems ? n - i : kLeafElems);
}

}  // namespace

extern const detail::OptTable opt_table = {&adamw, &accumulate, &square_sum_leaves};

}  // namespace strata::cpuopt::STRATA_ISA
