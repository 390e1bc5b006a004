#pragma once

#include <cstdint>

#include <strata/runtime/float16.h>
#include <strata/simd/isa_table.h>

namespace strata::kernels::detail {

template <class T>
struct ConvOperands;

/// Channels of a convolution that are processed together.
inline constexpr std::int64_t kConvChannels = 64;

/// SIMD kernels of the small ops around the delta rule for stored dtype T. Each instruction set has one table
/// per T, and all give the same bits.
template <class T>
struct RecurrentTable {
  /// The rows [first, last) of at most kConvChannels channels from `channel` on (conv_math.h).
  void (*conv_forward)(const ConvOperands<T>& c, std::int64_t channel, std::int64_t first, std::int64_t last,
                       T* y);
  /// Their dx, and in sums [taps + 1, kConvChannels] what they add to the gradients of weights and bias.
  void (*conv_backward)(const ConvOperands<T>& c, std::int64_t channel, std::int64_t first, std::int64_t last,
                        const T* dy, T* dx, float* sums);
  /// y = rmsnorm(x) weight z sigmoid(z) over n elements; [1]: the gate comes before the norm.
  void (*gated_norm_forward[2])(const T* x, const T* z, const T* weight, T* y, float* rstd, float eps,
                                std::int64_t n);
  /// Adds to dweight, which is the row block's partial sum; dx may be dy.
  void (*gated_norm_backward[2])(const T* x, const T* z, const T* weight, float rstd, const T* dy, T* dx,
                                 T* dz, float* dweight, std::int64_t n);
};

/// The table of simd::active_isa().
template <class T>
const RecurrentTable<T>& recurrent_table() noexcept;
template <>
const RecurrentTable<float>& recurrent_table<float>() noexcept;
template <>
const RecurrentTable<bf16>& recurrent_table<bf16>() noexcept;
template <>
const RecurrentTable<f16>& recurrent_table<f16>() noexcept;

}  // namespace strata::kernels::detail

namespace strata::kernels {
STRATA_DECLARE_ISA_TABLE(detail::RecurrentTable<float>, recurrent_f32)
STRATA_DECLARE_ISA_TABLE(detail::RecurrentTable<bf16>, recurrent_bf16)
STRATA_DECLARE_ISA_TABLE(detail::RecurrentTable<f16>, recurrent_f16)
}  // namespace strata::kernels
