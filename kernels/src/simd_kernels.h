#include <strata/simd/simd.h>

#include "row_common.h"
#include "simd_table.h"
#include "square_run.h"

namespace strata::kernels::STRATA_ISA {
namespace {

using simd::exp_of;
using simd::gelu_derivative_of;
using simd::gelu_of;
using simd::log_of;
using simd::select_greater;
using simd::sigmoid_of;
using simd::sqrt_of;

template <class T>
void add(const T* a, const T* b, T* y, std::int64_t n) {
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    store_lanes(y + i, load_lanes(a + i, lanes) + load_lanes(b + i, lanes), lanes);
  });
}

template <class T>
void gelu_forward(const T* x, T* y, std::int64_t n) {
  for_each_16(n, [&](std::int64_t i, int lanes)
                     STRATA_LANES_INLINE { store_lanes(y + i, gelu_of(load_lanes(x + i, lanes)), lanes); });
}

template <class T>
void gelu_backward(const T* x, const T* dy, T* dx, std::int64_t n) {
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    store_lanes(dx + i, load_lanes(dy + i, lanes) * gelu_derivative_of(load_lanes(x + i, lanes)), lanes);
  });
}

template <class T>
void relu_forward(const T* x, T* y, std::int64_t n) {
  const f32x16 zero(0.0f);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 v = load_lanes(x + i, lanes);
    store_lanes(y + i, select_greater(zero, v, zero, v), lanes);  // a NaN stays NaN
  });
}

template <class T>
void relu_backward(const T* x, const T* dy, T* dx, std::int64_t n) {
  const f32x16 zero(0.0f);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    store_lanes(dx + i, select_greater(load_lanes(x + i, lanes), zero, load_lanes(dy + i, lanes), zero),
                lanes);
  });
}

template <class T>
void relu2_forward(const T* x, T* y, std::int64_t n) {
  const f32x16 zero(0.0f);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 v = load_lanes(x + i, lanes), positive = select_greater(zero, v, zero, v);
    store_lanes(y + i, positive * positive, lanes);
  });
}

template <class T>
void relu2_backward(const T* x, const T* dy, T* dx, std::int64_t n) {
  const f32x16 zero(0.0f), two(2.0f);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 v = load_lanes(x + i, lanes);
    store_lanes(dx + i, select_greater(v, zero, load_lanes(dy + i, lanes) * (two * v), zero), lanes);
  });
}

template <class T>
void swiglu_forward(const T* gate, const T* up, T* y, std::int64_t n) {
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 g = load_lanes(gate + i, lanes);
    store_lanes(y + i, g * sigmoid_of(g).value * load_lanes(up + i, lanes), lanes);
  });
}

template <class T>
void swiglu_backward(const T* gate, const T* up, const T* dy, T* dgate, T* dup, std::int64_t n) {
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 g = load_lanes(gate + i, lanes), u = load_lanes(up + i, lanes),
                 d = load_lanes(dy + i, lanes);
    const auto s = sigmoid_of(g);
    store_lanes(dup + i, d * (g * s.value), lanes);
    store_lanes(dgate + i, d * u * (s.value + g * (s.value * s.complement)), lanes);
  });
}

template <class T>
void sigmoid_gate_forward(const T* x, const T* gate, T* y, std::int64_t n) {
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    store_lanes(y + i, load_lanes(x + i, lanes) * sigmoid_of(load_lanes(gate + i, lanes)).value, lanes);
  });
}

template <class T>
void sigmoid_gate_backward(const T* x, const T* gate, const T* dy, T* dx, T* dgate, std::int64_t n) {
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 of_x = load_lanes(x + i, lanes), d = load_lanes(dy + i, lanes);
    const auto s = sigmoid_of(load_lanes(gate + i, lanes));
    store_lanes(dx + i, d * s.value, lanes);
    store_lanes(dgate + i, d * of_x * (s.value * s.complement), lanes);
  });
}

template <class T>
void silu_gate_forward(const T* x, const T* gate, T* y, std::int64_t n) {
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 g = load_lanes(gate + i, lanes);
    store_lanes(y + i, load_lanes(x + i, lanes) * (g * sigmoid_of(g).value), lanes);
  });
}

template <class T>
void silu_gate_backward(const T* x, const T* gate, const T* dy, T* dx, T* dgate, std::int64_t n) {
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 of_x = load_lanes(x + i, lanes), d = load_lanes(dy + i, lanes),
                 g = load_lanes(gate + i, lanes);
    const auto s = sigmoid_of(g);
    store_lanes(dx + i, d * (g * s.value), lanes);
    store_lanes(dgate + i, d * of_x * (s.value + g * (s.value * s.complement)), lanes);
  });
}

template <class T>
void multiply(const T* a, const T* b, T* y, std::int64_t n) {
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    store_lanes(y + i, load_lanes(a + i, lanes) * load_lanes(b + i, lanes), lanes);
  });
}

template <class T>
void geglu_forward(const T* gate, const T* up, T* y, std::int64_t n) {
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    store_lanes(y + i, gelu_of(load_lanes(gate + i, lanes)) * load_lanes(up + i, lanes), lanes);
  });
}

template <class T>
void geglu_backward(const T* gate, const T* up, const T* dy, T* dgate, T* dup, std::int64_t n) {
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 g = load_lanes(gate + i, lanes), u = load_lanes(up + i, lanes),
                 d = load_lanes(dy + i, lanes);
    store_lanes(dup + i, d * gelu_of(g), lanes);
    store_lanes(dgate + i, d * u * gelu_derivative_of(g), lanes);
  });
}

template <class T>
void scale(const T* x, T* y, float by, std::int64_t n) {
  const f32x16 factor(by);
  for_each_16(n, [&](std::int64_t i, int lanes)
                     STRATA_LANES_INLINE { store_lanes(y + i, load_lanes(x + i, lanes) * factor, lanes); });
}

template <class T>
void rotate(const T* x1, const T* x2, const float* cosines, const float* sines, T* y1, T* y2,
            std::int64_t n) {
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 a = load_lanes(x1 + i, lanes), b = load_lanes(x2 + i, lanes);
    const f32x16 c = load_lanes(cosines + i, lanes), s = load_lanes(sines + i, lanes);
    store_lanes(y1 + i, a * c - b * s, lanes);
    store_lanes(y2 + i, b * c + a * s, lanes);
  });
}

template <class T>
void rmsnorm_forward(const T* x, const T* weight, T* y, float* rstd, float eps, float offset,
                     std::int64_t n) {
  f32x16 squares(0.0f);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 v = load_lanes(x + i, lanes);
    squares = squares + v * v;
  });
  *rstd = 1.0f / sqrt_of(reduce_add(squares) / static_cast<float>(n) + eps);
  const f32x16 scale(*rstd), base(offset), one(1.0f);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 w = weight != nullptr ? load_lanes(weight + i, lanes) + base : one;
    store_lanes(y + i, load_lanes(x + i, lanes) * scale * w, lanes);
  });
}

template <class T>
void rmsnorm_backward(const T* x, const T* weight, float rstd, const T* dy, T* dx, const T* residual,
                      float* dweight, float offset, std::int64_t n) {
  const f32x16 scale(rstd), base(offset), one(1.0f);
  f32x16 sum(0.0f);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 w = weight != nullptr ? load_lanes(weight + i, lanes) + base : one;
    sum = sum + load_lanes(dy + i, lanes) * w * (load_lanes(x + i, lanes) * scale);
  });
  const f32x16 mean(reduce_add(sum) / static_cast<float>(n));
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 normal = load_lanes(x + i, lanes) * scale, d = load_lanes(dy + i, lanes),
                 w = weight != nullptr ? load_lanes(weight + i, lanes) + base : one;
    if (dweight != nullptr) store_lanes(dweight + i, load_lanes(dweight + i, lanes) + d * normal, lanes);
    const f32x16 back = scale * (d * w - normal * mean);
    store_lanes(dx + i, residual != nullptr ? load_lanes(residual + i, lanes) + back : back, lanes);
  });
}

template <class T>
void layernorm_forward(const T* x, const T* weight, const T* bias, T* y, float* mean, float* rstd, float eps,
                       std::int64_t n) {
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

template <class T>
void layernorm_backward(const T* x, const T* weight, float mean, float rstd, const T* dy, T* dx,
                        const T* residual, float* dweight, float* dbias, std::int64_t n) {
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
    store_lanes(dx + i, residual != nullptr ? load_lanes(residual + i, lanes) + back : back, lanes);
  });
}

template <class T>
double square_sum(const T* x, std::int64_t n) {
  double total = 0.0;
  for (std::int64_t at = 0; at < n; at += detail::kSquareRun) {
    const std::int64_t length = n - at < detail::kSquareRun ? n - at : detail::kSquareRun;
    f32x16 sum(0.0f);
    for_each_16(length, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
      const f32x16 v = load_lanes(x + at + i, lanes);
      sum = sum + v * v;
    });
    total = total + static_cast<double>(reduce_add(sum));
  }
  return total;
}

// A norm that is NaN stays NaN.
template <class T>
void scale_columns(const T* x, const float* m, const float* norm, const T* bias, T* y, std::int64_t n) {
  const f32x16 zero(0.0f);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 by = load_lanes(norm + i, lanes);
    const f32x16 factor = select_greater(by, zero, load_lanes(m + i, lanes) / by, by);
    const f32x16 scaled = load_lanes(x + i, lanes) * factor;
    store_lanes(y + i, bias != nullptr ? scaled + load_lanes(bias + i, lanes) : scaled, lanes);
  });
}

template <class T>
void accumulate_product(float* acc, const T* a, const T* b, std::int64_t n) {
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    store_lanes(acc + i, load_lanes(acc + i, lanes) + load_lanes(a + i, lanes) * load_lanes(b + i, lanes),
                lanes);
  });
}

template <class T>
void accumulate_scaled(float* acc, const T* x, float factor, std::int64_t n) {
  const f32x16 by(factor);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    store_lanes(acc + i, load_lanes(acc + i, lanes) + load_lanes(x + i, lanes) * by, lanes);
  });
}

template <class T>
float dot(const T* a, const T* b, std::int64_t n) {
  f32x16 sum(0.0f);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    sum = sum + load_lanes(a + i, lanes) * load_lanes(b + i, lanes);
  });
  return reduce_add(sum);
}

// Every 4096 elements are summed in f32 lanes and these sums are added in f64, so that the result is accurate
// for long rows (a vocabulary).
template <class T>
float log_sum_exp(const T* x, std::int64_t n) {
  const float row_max = reduce_row_max(x, n);
  const f32x16 top(row_max);
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
  return static_cast<float>(static_cast<double>(row_max) + log_of(total));
}

template <class T>
void softmax_from_lse(const T* x, T* y, float lse, float scale, std::int64_t n) {
  const f32x16 shift(lse), factor(scale);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    store_lanes(y + i, exp_of(load_lanes(x + i, lanes) - shift) * factor, lanes);
  });
}

}  // namespace

// T is the stored dtype of activations and parameters; arithmetic, partial sums and row statistics are f32.
template <class T>
constexpr detail::SimdTable<T> make_simd_table() {
  return {&add<T>,
          &accumulate_row<T>,
          &gelu_forward<T>,
          &gelu_backward<T>,
          &relu_forward<T>,
          &relu_backward<T>,
          &relu2_forward<T>,
          &relu2_backward<T>,
          &swiglu_forward<T>,
          &swiglu_backward<T>,
          &geglu_forward<T>,
          &geglu_backward<T>,
          &sigmoid_gate_forward<T>,
          &sigmoid_gate_backward<T>,
          &silu_gate_forward<T>,
          &silu_gate_backward<T>,
          &multiply<T>,
          &scale<T>,
          &rotate<T>,
          &rmsnorm_forward<T>,
          &rmsnorm_backward<T>,
          &layernorm_forward<T>,
          &layernorm_backward<T>,
          &square_sum<T>,
          &scale_columns<T>,
          &accumulate_product<T>,
          &accumulate_scaled<T>,
          &dot<T>,
          &log_sum_exp<T>,
          &softmax_from_lse<T>};
}
extern const detail::SimdTable<float> simd_f32 = make_simd_table<float>();
extern const detail::SimdTable<bf16> simd_bf16 = make_simd_table<bf16>();
extern const detail::SimdTable<f16> simd_f16 = make_simd_table<f16>();

}  // namespace strata::kernels::STRATA_ISA
