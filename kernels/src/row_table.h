#pragma once

#include <cstdint>

namespace strata::kernels::detail {

/// SIMD bodies over one row (or flat range) of n elements; each instruction set has one table, all with the
/// same bits.
struct RowTable {
  void (*add)(const float* a, const float* b, float* y, std::int64_t n);
  void (*add_to)(float* acc, const float* x, std::int64_t n);
  void (*gelu_forward)(const float* x, float* y, std::int64_t n);
  void (*gelu_backward)(const float* x, const float* dy, float* dx, std::int64_t n);
  void (*relu_forward)(const float* x, float* y, std::int64_t n);
  void (*relu_backward)(const float* x, const float* dy, float* dx, std::int64_t n);
  void (*swiglu_forward)(const float* gate, const float* up, float* y, std::int64_t n);
  /// dgate and dup may be gate and up.
  void (*swiglu_backward)(const float* gate, const float* up, const float* dy, float* dgate, float* dup,
                          std::int64_t n);
  /// n pairs (x1[i], x2[i]) turned by the angles whose cosines and sines are given; y1, y2 may be x1, x2.
  void (*rotate)(const float* x1, const float* x2, const float* cosines, const float* sines, float* y1,
                 float* y2, std::int64_t n);
  void (*rmsnorm_forward)(const float* x, const float* weight, float* y, float* rstd, float eps,
                          std::int64_t n);
  /// Adds to dweight, which is the row block's partial sum; dx may be dy.
  void (*rmsnorm_backward)(const float* x, const float* weight, float rstd, const float* dy, float* dx,
                           float* dweight, std::int64_t n);
  void (*layernorm_forward)(const float* x, const float* weight, const float* bias, float* y, float* mean,
                            float* rstd, float eps, std::int64_t n);
  /// Adds to dweight and dbias, which are the row block's partial sums.
  void (*layernorm_backward)(const float* x, const float* weight, float mean, float rstd, const float* dy,
                             float* dx, bool accumulate_dx, float* dweight, float* dbias, std::int64_t n);
  float (*dot)(const float* a, const float* b, std::int64_t n);
  float (*log_sum_exp)(const float* x, std::int64_t n);
  /// y = exp(x - lse) * scale.
  void (*softmax_from_lse)(const float* x, float* y, float lse, float scale, std::int64_t n);
  /// x becomes softmax(scale * x); returns the lse of scale * x.
  float (*attention_softmax)(float* x, float scale, std::int64_t n);
  /// x (scores) becomes p = exp(scale * x - lse); dp becomes p * (dp - d) * dp_scale.
  void (*attention_softmax_backward)(float* x, float* dp, float lse, float d, float scale, float dp_scale,
                                     std::int64_t n);
  /// x = scale * x + bias.
  void (*scale_add)(float* x, float scale, const float* bias, std::int64_t n);
};

/// The table of cpuopt::active_isa().
const RowTable& row_table() noexcept;

}  // namespace strata::kernels::detail

namespace strata::kernels::scalar {
extern const detail::RowTable row_bodies;
}
namespace strata::kernels::sse42 {
extern const detail::RowTable row_bodies;
}
namespace strata::kernels::avx2 {
extern const detail::RowTable row_bodies;
}
namespace strata::kernels::avx512 {
extern const detail::RowTable row_bodies;
}
