#pragma once

#include <cstdint>

#include <strata/simd/math/elementary.h>
#include <strata/simd/math/host_device.h>
#include <strata/dispatch/cuda/lanes.h>
#include <strata/runtime/float16.h>

#include "lowest_score.h"

/// The arithmetic of the device kernels on one row, one column of a block of rows, or one element. It has the
/// operations of the host's SIMD kernels (simd_kernels.h) in the same order, hence their bits. `Lanes` is
/// HalfWarp (lanes.h), or EmulatedHalfWarp in tests.
namespace strata::kernels::detail {

// --- elements

template <class T>
STRATA_HD T stored_add(T a, T b) {
  return from_f32<T>(to_f32(a) + to_f32(b));
}
template <class T>
STRATA_HD T stored_gelu(T x) {
  return from_f32<T>(simd::gelu_of(to_f32(x)));
}
template <class T>
STRATA_HD T stored_gelu_backward(T x, T dy) {
  return from_f32<T>(to_f32(dy) * simd::gelu_derivative_of(to_f32(x)));
}
template <class T>
STRATA_HD T stored_relu(T x) {
  const float v = to_f32(x);
  return from_f32<T>(0.0f > v ? 0.0f : v);  // a NaN passes through
}
template <class T>
STRATA_HD T stored_relu_backward(T x, T dy) {
  return from_f32<T>(to_f32(x) > 0.0f ? to_f32(dy) : 0.0f);
}
template <class T>
STRATA_HD T stored_relu2(T x) {
  const float v = to_f32(x), positive = 0.0f > v ? 0.0f : v;
  return from_f32<T>(positive * positive);
}
template <class T>
STRATA_HD T stored_relu2_backward(T x, T dy) {
  const float v = to_f32(x);
  return from_f32<T>(v > 0.0f ? to_f32(dy) * (2.0f * v) : 0.0f);
}
template <class T>
STRATA_HD T stored_swiglu(T gate, T up) {
  const float g = to_f32(gate);
  return from_f32<T>(g * simd::sigmoid_of(g).value * to_f32(up));
}
template <class T>
struct GateUp {
  T gate, up;
};
template <class T>
STRATA_HD GateUp<T> stored_swiglu_backward(T gate, T up, T dy) {
  const float g = to_f32(gate), u = to_f32(up), d = to_f32(dy);
  const auto s = simd::sigmoid_of(g);
  return {from_f32<T>(d * u * (s.value + g * (s.value * s.complement))), from_f32<T>(d * (g * s.value))};
}
template <class T>
STRATA_HD T stored_product(T a, T b) {
  return from_f32<T>(to_f32(a) * to_f32(b));
}
template <class T>
STRATA_HD T stored_sigmoid_gate(T x, T gate) {
  return from_f32<T>(to_f32(x) * simd::sigmoid_of(to_f32(gate)).value);
}
template <class T>
struct XAndGate {
  T x, gate;
};
template <class T>
STRATA_HD XAndGate<T> stored_sigmoid_gate_backward(T x, T gate, T dy) {
  const float d = to_f32(dy);
  const auto s = simd::sigmoid_of(to_f32(gate));
  return {from_f32<T>(d * s.value), from_f32<T>(d * to_f32(x) * (s.value * s.complement))};
}
template <class T>
STRATA_HD T stored_silu_gate(T x, T gate) {
  const float g = to_f32(gate);
  return from_f32<T>(to_f32(x) * (g * simd::sigmoid_of(g).value));
}
template <class T>
STRATA_HD XAndGate<T> stored_silu_gate_backward(T x, T gate, T dy) {
  const float d = to_f32(dy), g = to_f32(gate);
  const auto s = simd::sigmoid_of(g);
  return {from_f32<T>(d * (g * s.value)),
          from_f32<T>(d * to_f32(x) * (s.value + g * (s.value * s.complement)))};
}
template <class T>
STRATA_HD T stored_geglu(T gate, T up) {
  return from_f32<T>(simd::gelu_of(to_f32(gate)) * to_f32(up));
}
template <class T>
STRATA_HD GateUp<T> stored_geglu_backward(T gate, T up, T dy) {
  const float g = to_f32(gate), u = to_f32(up), d = to_f32(dy);
  return {from_f32<T>(d * u * simd::gelu_derivative_of(g)), from_f32<T>(d * simd::gelu_of(g))};
}
template <class T>
STRATA_HD T stored_scale(T x, float factor) {
  return from_f32<T>(to_f32(x) * factor);
}
/// The soft cap of a logit, cap * tanh(x / cap), and its derivative as a function of the capped logit.
STRATA_HD float capped_logit(float x, float cap, float inverse) { return simd::tanh_of(x * inverse) * cap; }
STRATA_HD float capped_logit(float x, float cap) { return capped_logit(x, cap, 1.0f / cap); }
STRATA_HD float cap_derivative(float capped, float cap) {
  const float t = capped * (1.0f / cap);
  return 1.0f - t * t;
}
/// factor * (cap * tanh(x / cap)), or factor * x if cap is 0.
STRATA_HD float scaled_capped_logit(float x, float factor, float cap) {
  return (cap > 0.0f ? capped_logit(x, cap) : x) * factor;
}
template <class T>
struct Pair {
  T first, second;
};
template <class T>
STRATA_HD Pair<T> rotate(T first, T second, float cosine, float sine) {
  const float a = to_f32(first), b = to_f32(second);
  return {from_f32<T>(a * cosine - b * sine), from_f32<T>(b * cosine + a * sine)};
}

// --- cross entropy

inline constexpr std::int64_t kLseRun = 4096;  // elements whose exponentials are summed in f32

template <class Lanes, class T>
STRATA_DEVICE_INLINE float max_of_row(const Lanes& lanes, const T* x, std::int64_t n) {
  return lanes.max(n, kLowestScore, [&](std::int64_t i) { return to_f32(x[i]); });
}
/// The sum of exponentials of run `run` of a row. The caller adds the runs in f64, in order.
template <class Lanes, class T>
STRATA_DEVICE_INLINE float exp_sum_of_run(const Lanes& lanes, const T* x, float row_max, std::int64_t run,
                                          std::int64_t n) {
  const std::int64_t at = run * kLseRun;
  const std::int64_t length = n - at < kLseRun ? n - at : kLseRun;
  return lanes.template sum<float>(length,
                                   [&](std::int64_t i) { return simd::exp_of(to_f32(x[at + i]) - row_max); });
}
/// The sum of p log p over run `run` of a row with that log-sum-exp. The caller adds the runs as above.
template <class Lanes>
STRATA_DEVICE_INLINE float entropy_sum_of_run(const Lanes& lanes, const float* x, float lse, std::int64_t run,
                                              std::int64_t n) {
  const std::int64_t at = run * kLseRun;
  const std::int64_t length = n - at < kLseRun ? n - at : kLseRun;
  return lanes.template sum<float>(length, [&](std::int64_t i) {
    const float v = x[at + i] - lse;
    return simd::exp_of(v) * v;
  });
}
STRATA_HD float lse_of(float row_max, double total) {
  return static_cast<float>(static_cast<double>(row_max) + simd::log_of(total));
}
template <class T>
STRATA_HD T loss_gradient(T logit, float lse, float scale, bool is_target) {
  const float p = simd::exp_of(to_f32(logit) - lse) * scale;
  return from_f32<T>(is_target ? p - scale : p);
}

// --- sums in one order

/// simd::tree_sum() of n values, one value after the other: equal-sized sums of powers of two are merged as
/// soon as there are two of them, and the rest is added from the last to the first. At most 2^40 values.
template <class F>
STRATA_HD double tree_sum_of(std::int64_t n, const F& value) {
  double waiting[41];
  std::int64_t sizes[41];
  int depth = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    waiting[depth] = value(i);
    sizes[depth++] = 1;
    for (; depth > 1 && sizes[depth - 1] == sizes[depth - 2]; --depth) {
      waiting[depth - 2] = waiting[depth - 2] + waiting[depth - 1];
      sizes[depth - 2] *= 2;
    }
  }
  for (; depth > 1; --depth) waiting[depth - 2] = waiting[depth - 2] + waiting[depth - 1];
  return depth > 0 ? waiting[0] : 0.0;
}

}  // namespace strata::kernels::detail
