#include <strata/cpuopt/simd.h>

#include "row_parts.h"
#include "row_table.h"

namespace strata::kernels::STRATA_ISA {
namespace {

using cpuopt::exp_of;
using cpuopt::log_of;

float dot(const float* a, const float* b, std::int64_t n) {
  f32x16 sum(0.0f);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    sum = sum + load_lanes(a + i, lanes) * load_lanes(b + i, lanes);
  });
  return reduce_add(sum);
}

float attention_softmax(float* x, float scale, std::int64_t n) {
  const float most = max_of_row(x, n) * scale;  // scale > 0 keeps the order
  const f32x16 factor(scale), top(most);
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
  return static_cast<float>(static_cast<double>(most) + log_of(static_cast<double>(total)));
}

void attention_softmax_backward(float* x, float* dp, float lse, float d, float scale, float dp_scale,
                                std::int64_t n) {
  const f32x16 factor(scale), dp_factor(dp_scale), shift(lse), center(d);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 p = exp_of(load_lanes(x + i, lanes) * factor - shift);
    store_lanes(x + i, p, lanes);
    store_lanes(dp + i, p * (load_lanes(dp + i, lanes) - center) * dp_factor, lanes);
  });
}

void scale_add(float* x, float scale, const float* bias, std::int64_t n) {
  const f32x16 factor(scale);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    store_lanes(x + i, load_lanes(x + i, lanes) * factor + load_lanes(bias + i, lanes), lanes);
  });
}

}  // namespace

extern const detail::RowTable row_bodies = {&sum_to<float>, &dot, &attention_softmax,
                                            &attention_softmax_backward, &scale_add};

}  // namespace strata::kernels::STRATA_ISA
