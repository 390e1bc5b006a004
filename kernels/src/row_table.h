#pragma once

#include <cstdint>

#include <strata/simd/isa_table.h>

namespace strata::kernels::detail {

/// SIMD kernels over n elements of data that is f32 for every stored dtype: sums and attention scores. Each
/// instruction set has one table, and all give the same bits.
struct RowTable {
  void (*accumulate_row)(float* acc, const float* x, std::int64_t n);
  /// x becomes softmax(scale * x); returns the lse of scale * x.
  float (*attention_softmax)(float* x, float scale, std::int64_t n);
  /// x (scores) becomes p = exp(scale * x - lse); dp becomes p * (dp - center) * dp_scale, where center is
  /// given, or null for sum(p * dp). Returns center.
  float (*attention_softmax_backward)(float* x, float* dp, float lse, float scale, float dp_scale,
                                      const float* center, std::int64_t n);
  /// x = cap * tanh(scale * x / cap).
  void (*softcap)(float* x, float scale, float cap, std::int64_t n);
  /// attention_softmax_backward() for scores with a soft cap, where x has the scores before softcap().
  float (*softcap_softmax_backward)(float* x, float* dp, float lse, float scale, float cap,
                                    const float* center, std::int64_t n);
  /// x (after softcap()) becomes exp(x - lse) * scale times the derivative of the cap.
  void (*capped_softmax_from_lse)(float* x, float lse, float scale, float cap, std::int64_t n);
  /// The entropy of softmax(x), whose log-sum-exp is given.
  float (*entropy)(const float* x, float lse, std::int64_t n);
  /// x = scale * x + bias.
  void (*scale_add)(float* x, float scale, const float* bias, std::int64_t n);
};

/// The table of simd::active_isa().
const RowTable& row_table() noexcept;

}  // namespace strata::kernels::detail

namespace strata::kernels {
STRATA_DECLARE_ISA_TABLE(detail::RowTable, row_kernels)
}  // namespace strata::kernels
