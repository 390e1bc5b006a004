#pragma once

#include <cstdint>

#include <strata/runtime/float16.h>
#include <strata/simd/isa_table.h>

namespace strata::kernels::detail {

/// SIMD kernels over one row (or flat range) of n elements with stored dtype T: float, bf16 or f16. They
/// compute in f32 and round once, when they store. Each instruction set has one table per T, and all sets
/// give the same bits.
template <class T>
struct SimdTable {
  void (*add)(const T* a, const T* b, T* y, std::int64_t n);
  /// acc += x.
  void (*accumulate_row)(float* acc, const T* x, std::int64_t n);
  void (*gelu_forward)(const T* x, T* y, std::int64_t n);
  void (*gelu_backward)(const T* x, const T* dy, T* dx, std::int64_t n);
  void (*relu_forward)(const T* x, T* y, std::int64_t n);
  void (*relu_backward)(const T* x, const T* dy, T* dx, std::int64_t n);
  void (*relu2_forward)(const T* x, T* y, std::int64_t n);
  void (*relu2_backward)(const T* x, const T* dy, T* dx, std::int64_t n);
  void (*swiglu_forward)(const T* gate, const T* up, T* y, std::int64_t n);
  /// dgate and dup may be gate and up.
  void (*swiglu_backward)(const T* gate, const T* up, const T* dy, T* dgate, T* dup, std::int64_t n);
  void (*geglu_forward)(const T* gate, const T* up, T* y, std::int64_t n);
  void (*geglu_backward)(const T* gate, const T* up, const T* dy, T* dgate, T* dup, std::int64_t n);
  /// y = x * sigmoid(gate).
  void (*sigmoid_gate_forward)(const T* x, const T* gate, T* y, std::int64_t n);
  /// dx may be x or dy, and dgate gate.
  void (*sigmoid_gate_backward)(const T* x, const T* gate, const T* dy, T* dx, T* dgate, std::int64_t n);
  /// The same with y = x * silu(gate).
  void (*silu_gate_forward)(const T* x, const T* gate, T* y, std::int64_t n);
  void (*silu_gate_backward)(const T* x, const T* gate, const T* dy, T* dx, T* dgate, std::int64_t n);
  void (*multiply)(const T* a, const T* b, T* y, std::int64_t n);
  /// y = factor * x; y may be x.
  void (*scale)(const T* x, T* y, float factor, std::int64_t n);
  /// Rotates n pairs (x1[i], x2[i]) by the angles with the given cosines and sines; y1, y2 may be x1, x2.
  void (*rotate)(const T* x1, const T* x2, const float* cosines, const float* sines, T* y1, T* y2,
                 std::int64_t n);
  /// Without a weight, which is null then, it is 1; the backward's dweight is null, too.
  void (*rmsnorm_forward)(const T* x, const T* weight, T* y, float* rstd, float eps, float offset,
                          std::int64_t n);
  /// Adds to dweight, which is the row block's partial sum; dx may be dy. `residual`, which may be null, is
  /// added to dx.
  void (*rmsnorm_backward)(const T* x, const T* weight, float rstd, const T* dy, T* dx, const T* residual,
                           float* dweight, float offset, std::int64_t n);
  void (*layernorm_forward)(const T* x, const T* weight, const T* bias, T* y, float* mean, float* rstd,
                            float eps, std::int64_t n);
  /// Adds to dweight and dbias, which are the row block's partial sums. `residual` is as above.
  void (*layernorm_backward)(const T* x, const T* weight, float mean, float rstd, const T* dy, T* dx,
                             const T* residual, float* dweight, float* dbias, std::int64_t n);
  /// The sum of squares: in f32 over runs of detail::kSquareRun elements, which are added in f64.
  double (*square_sum)(const T* x, std::int64_t n);
  /// y = x * m / norm + bias; the quotient is zero where norm is. `bias` may be null; y may be x.
  void (*scale_columns)(const T* x, const float* m, const float* norm, const T* bias, T* y, std::int64_t n);
  /// acc += a * b.
  void (*accumulate_product)(float* acc, const T* a, const T* b, std::int64_t n);
  /// acc += factor * x.
  void (*accumulate_scaled)(float* acc, const T* x, float factor, std::int64_t n);
  float (*dot)(const T* a, const T* b, std::int64_t n);
  float (*log_sum_exp)(const T* x, std::int64_t n);
  /// y = exp(x - lse) * scale.
  void (*softmax_from_lse)(const T* x, T* y, float lse, float scale, std::int64_t n);
};

/// The table of simd::active_isa().
template <class T>
const SimdTable<T>& simd_table() noexcept;
template <>
const SimdTable<float>& simd_table<float>() noexcept;
template <>
const SimdTable<bf16>& simd_table<bf16>() noexcept;
template <>
const SimdTable<f16>& simd_table<f16>() noexcept;

}  // namespace strata::kernels::detail

namespace strata::kernels {
STRATA_DECLARE_ISA_TABLE(detail::SimdTable<float>, simd_f32)
STRATA_DECLARE_ISA_TABLE(detail::SimdTable<bf16>, simd_bf16)
STRATA_DECLARE_ISA_TABLE(detail::SimdTable<f16>, simd_f16)
}  // namespace strata::kernels
