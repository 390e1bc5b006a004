#pragma once

#include <cstdint>

#include <strata/simd/isa_table.h>
#include <strata/runtime/float16.h>

namespace strata::kernels::detail {

/// Values of a block of NF4 and int8, and of one of the types of 4 bits whose first value is in the lower
/// half.
inline constexpr std::int64_t kLongBlock = 64, kShortBlock = 32;

/// SIMD kernels over whole blocks of a quantized matrix, each with its scale. Each instruction set has one
/// table per T (float, bf16 or f16), and all give the same bits.
template <class T>
struct DequantizeTable {
  void (*nf4)(const std::uint8_t* codes, const float* scales, T* x, std::int64_t blocks);
  void (*int8)(const std::uint8_t* codes, const float* scales, T* x, std::int64_t blocks);
  /// `levels`: the values of the 16 codes.
  void (*first_lower)(const std::uint8_t* codes, const float* levels, const float* scales, T* x,
                      std::int64_t blocks);
  /// n values with one scale; n is a multiple of 16.
  void (*e4m3)(const std::uint8_t* codes, float scale, T* x, std::int64_t n);
};
/// The same for the way back, from f32.
struct QuantizeTable {
  /// A value's code is that of the nearest level, the lower one of two that are equally near.
  void (*nf4)(const float* x, std::uint8_t* codes, float* scales, std::int64_t blocks);
};

/// The tables of simd::active_isa().
template <class T>
const DequantizeTable<T>& dequantize_table() noexcept;
template <>
const DequantizeTable<float>& dequantize_table<float>() noexcept;
template <>
const DequantizeTable<bf16>& dequantize_table<bf16>() noexcept;
template <>
const DequantizeTable<f16>& dequantize_table<f16>() noexcept;
const QuantizeTable& quantize_table() noexcept;

}  // namespace strata::kernels::detail

namespace strata::kernels {
STRATA_DECLARE_ISA_TABLE(detail::DequantizeTable<float>, dequantize_f32)
STRATA_DECLARE_ISA_TABLE(detail::DequantizeTable<bf16>, dequantize_bf16)
STRATA_DECLARE_ISA_TABLE(detail::DequantizeTable<f16>, dequantize_f16)
STRATA_DECLARE_ISA_TABLE(detail::QuantizeTable, quantize_f32)
}  // namespace strata::kernels
