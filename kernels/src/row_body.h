#include <strata/cpuopt/simd.h>

#include "row_table.h"

namespace strata::kernels::STRATA_ISA {
namespace {

using cpuopt::exp_of;
using cpuopt::gelu_derivative_of;
using cpuopt::gelu_of;
using cpuopt::log_of;
using cpuopt::select_greater;
using cpuopt::sigmoid_of;
using cpuopt::sqrt_of;
using cpuopt::STRATA_ISA::f32x16;
using cpuopt::STRATA_ISA::for_each_16;
using cpuopt::STRATA_ISA::load_lanes;
using cpuopt::STRATA_ISA::max_of;
using cpuopt::STRATA_ISA::reduce_add;
using cpuopt::STRATA_ISA::reduce_max;
using cpuopt::STRATA_ISA::store_lanes;

// Below the smallest score: e^(this - max) is 0 in the lanes past a row's end.
constexpr float kLowest = -3.402823466e38f;

void add(const float* a, const float* b, float* y, std::int64_t n) {
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    store_lanes(y + i, load_lanes(a + i, lanes) + load_lanes(b + i, lanes), lanes);
  });
}

void add_to(float* acc, const float* x, std::int64_t n) { add(acc, x, acc, n); }

void gelu_forward(const float* x, float* y, std::int64_t n) {
  for_each_16(n, [&](std::int64_t i, int lanes)
                     STRATA_LANES_INLINE { store_lanes(y + i, gelu_of(load_lanes(x + i, lanes)), lanes); });
}

void gelu_backward(const float* x, const float* dy, float* dx, std::int64_t n) {
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    store_lanes(dx + i, load_lanes(dy + i, lanes) * gelu_derivative_of(load_lanes(x + i, lanes)), lanes);
  });
}

void relu_forward(const float* x, float* y, std::int64_t n) {
  const f32x16 zero(0.0f);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 v = load_lanes(x + i, lanes);
    store_lanes(y + i, select_greater(zero, v, zero, v), lanes);  // a NaN passes
  });
}

void relu_backward(const float* x, const float* dy, float* dx, std::int64_t n) {
  const f32x16 zero(0.0f);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    store_lanes(dx + i, select_greater(load_lanes(x + i, lanes), zero, load_lanes(dy + i, lanes), zero),
                lanes);
  });
}

void swiglu_forward(const float* gate, const float* up, float* y, std::int64_t n) {
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 g = load_lanes(gate + i, lanes);
    store_lanes(y + i, g * sigmoid_of(g).value * load_lanes(up + i, lanes), lanes);
  });
}

void swiglu_backward(const float* gate, const float* up, const float* dy, float* dgate, float* dup,
                     std::int64_t n) {
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 g = load_lanes(gate + i, lanes), u = load_lanes(up + i, lanes),
                 d = load_lanes(dy + i, lanes);
    const auto s = sigmoid_of(g);
    store_lanes(dup + i, d * (g * s.value), lanes);
    store_lanes(dgate + i, d * u * (s.value + g * (s.value * s.complement)), lanes);
  });
}

void rotate(const float* x1, const float* x2, const float* cosines, const float* sines, float* y1, float* y2,
            std::int64_t n) {
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 a = load_lanes(x1 + i, lanes), b = load_lanes(x2 + i, lanes);
    const f32x16 c = load_lanes(cosines + i, lanes), s = load_lanes(sines + i, lanes);
    store_lanes(y1 + i, a * c - b * s, lanes);
    store_lanes(y2 + i, b * c + a * s, lanes);
  });
}

void rmsnorm_forward(const float* x, const float* weight, float* y, float* rstd, float eps, std::int64_t n) {
  f32x16 squares(0.0f);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 v = load_lanes(x + i, lanes);
    squares = squares + v * v;
  });
  *rstd = 1.0f / sqrt_of(reduce_add(squares) / static_cast<float>(n) + eps);
  const f32x16 scale(*rstd);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    store_lanes(y + i, load_lanes(x + i, lanes) * scale * load_lanes(weight + i, lanes), lanes);
  });
}

void rmsnorm_backward(const float* x, const float* weight, float rstd, const float* dy, float* dx,
                      float* dweight, std::int64_t n) {
  const f32x16 scale(rstd);
  f32x16 sum(0.0f);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    sum =
        sum + load_lanes(dy + i, lanes) * load_lanes(weight + i, lanes) * (load_lanes(x + i, lanes) * scale);
  });
  const f32x16 mean(reduce_add(sum) / static_cast<float>(n));
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 normal = load_lanes(x + i, lanes) * scale, d = load_lanes(dy + i, lanes);
    store_lanes(dweight + i, load_lanes(dweight + i, lanes) + d * normal, lanes);
    store_lanes(dx + i, scale * (d * load_lanes(weight + i, lanes) - normal * mean), lanes);
  });
}

void layernorm_forward(const float* x, const float* weight, const float* bias, float* y, float* mean,
                       float* rstd, float eps, std::int64_t n) {
  f32x16 sum(0.0f);
  for_each_16(n,
              [&](std::int64_t i, int lanes) STRATA_LANES_INLINE { sum = sum + load_lanes(x + i, lanes); });
  const auto count = static_cast<float>(n);
  *mean = reduce_add(sum) / count;
  const f32x16 center(*mean);
  f32x16 squares(0.0f);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    f32x16 d = load_lanes(x + i, lanes) - center;
    if (lanes < 16) d = d.keep_first(lanes);
    squares = squares + d * d;
  });
  *rstd = 1.0f / sqrt_of(reduce_add(squares) / count + eps);
  const f32x16 scale(*rstd);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 normal = (load_lanes(x + i, lanes) - center) * scale;
    store_lanes(y + i, normal * load_lanes(weight + i, lanes) + load_lanes(bias + i, lanes), lanes);
  });
}

void layernorm_backward(const float* x, const float* weight, float mean, float rstd, const float* dy,
                        float* dx, bool accumulate_dx, float* dweight, float* dbias, std::int64_t n) {
  const f32x16 center(mean), scale(rstd);
  f32x16 sum_g(0.0f), sum_gx(0.0f);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 g = load_lanes(dy + i, lanes) * load_lanes(weight + i, lanes);  // zero past the end
    sum_g = sum_g + g;
    sum_gx = sum_gx + g * ((load_lanes(x + i, lanes) - center) * scale);
  });
  const auto count = static_cast<float>(n);
  const f32x16 mean_g(reduce_add(sum_g) / count), mean_gx(reduce_add(sum_gx) / count), zero(0.0f);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 normal = (load_lanes(x + i, lanes) - center) * scale;
    const f32x16 d = load_lanes(dy + i, lanes);
    const f32x16 back = scale * (d * load_lanes(weight + i, lanes) - mean_g - normal * mean_gx);
    store_lanes(dweight + i, load_lanes(dweight + i, lanes) + d * normal, lanes);
    store_lanes(dbias + i, load_lanes(dbias + i, lanes) + d, lanes);
    store_lanes(dx + i, accumulate_dx ? load_lanes(dx + i, lanes) + back : back, lanes);
  });
}

float dot(const float* a, const float* b, std::int64_t n) {
  f32x16 sum(0.0f);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    sum = sum + load_lanes(a + i, lanes) * load_lanes(b + i, lanes);
  });
  return reduce_add(sum);
}

float max_of_row(const float* x, std::int64_t n) {
  f32x16 most(kLowest);
  for_each_16(n, [&](std::int64_t i, int lanes)
                     STRATA_LANES_INLINE { most = max_of(load_lanes(x + i, lanes, kLowest), most); });
  return reduce_max(most);
}

// Sums of 4096 elements are kept in f32 lanes and added in f64, so that long rows (a vocabulary) stay
// accurate.
float log_sum_exp(const float* x, std::int64_t n) {
  const float most = max_of_row(x, n);
  const f32x16 top(most);
  double total = 0.0;
  for (std::int64_t at = 0; at < n; at += 4096) {
    const std::int64_t length = n - at < 4096 ? n - at : 4096;
    f32x16 sum(0.0f);
    for_each_16(length, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
      const f32x16 e = exp_of(load_lanes(x + at + i, lanes) - top);
      sum = sum + (lanes < 16 ? e.keep_first(lanes) : e);
    });
    total += static_cast<double>(reduce_add(sum));
  }
  return static_cast<float>(static_cast<double>(most) + log_of(total));
}

void softmax_from_lse(const float* x, float* y, float lse, float scale, std::int64_t n) {
  const f32x16 shift(lse), factor(scale);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    store_lanes(y + i, exp_of(load_lanes(x + i, lanes) - shift) * factor, lanes);
  });
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

extern const detail::RowTable row_bodies = {&add,
                                            &add_to,
                                            &gelu_forward,
                                            &gelu_backward,
                                            &relu_forward,
                                            &relu_backward,
                                            &swiglu_forward,
                                            &swiglu_backward,
                                            &rotate,
                                            &rmsnorm_forward,
                                            &rmsnorm_backward,
                                            &layernorm_forward,
                                            &layernorm_backward,
                                            &dot,
                                            &log_sum_exp,
                                            &softmax_from_lse,
                                            &attention_softmax,
                                            &attention_softmax_backward,
                                            &scale_add};

}  // namespace strata::kernels::STRATA_ISA
