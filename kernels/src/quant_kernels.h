#include <strata/simd/simd.h>

#include "cuda/quant/weight_codes.h"
#include "quant/dequantize_table.h"

namespace strata::kernels::STRATA_ISA {
namespace {

using simd::select_greater;
using simd::STRATA_ISA::abs_of;
using simd::STRATA_ISA::bits_of;
using simd::STRATA_ISA::f32x16;
using simd::STRATA_ISA::float_of;
using simd::STRATA_ISA::max_of;
using simd::STRATA_ISA::u32x16;

constexpr int kCodesOf16 = 8;  // bytes
// Copies with internal linkage: a weak symbol of one instruction set could replace that of another.
constexpr detail::CodeLevels kLevels = detail::code_levels(ValueType::nf4);
constexpr detail::Nf4Middles kMiddles = detail::nf4_middles();

// The levels of 16 codes, two in a byte, the first in its upper half or in its lower half.
#if defined(STRATA_ISA_IS_avx512) || defined(STRATA_ISA_IS_avx2)
template <bool kFirstLower>
STRATA_HD __m128i unpacked(const std::uint8_t* codes) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)), low = _mm_set1_epi8(0xF);
  const __m128i upper = _mm_and_si128(_mm_srli_epi16(bytes, 4), low), lower = _mm_and_si128(bytes, low);
  return kFirstLower ? _mm_unpacklo_epi8(lower, upper) : _mm_unpacklo_epi8(upper, lower);
}
#endif
#if defined(STRATA_ISA_IS_avx512)
template <bool kFirstLower>
STRATA_HD f32x16 levels_of(const std::uint8_t* codes, const detail::CodeLevels& levels) {
  f32x16 out;
  out.part[0] =
      _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(unpacked<kFirstLower>(codes)), _mm512_loadu_ps(levels.of));
  return out;
}
#elif defined(STRATA_ISA_IS_avx2)
STRATA_HD __m256 levels_of_8(__m128i codes, const detail::CodeLevels& levels) {
  const __m256i index = _mm256_cvtepu8_epi32(codes);
  const __m256 below = _mm256_permutevar8x32_ps(_mm256_loadu_ps(levels.of), index),
               above = _mm256_permutevar8x32_ps(_mm256_loadu_ps(levels.of + 8), index);
  return _mm256_blendv_ps(below, above, _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));  // bit 3 selects
}
template <bool kFirstLower>
STRATA_HD f32x16 levels_of(const std::uint8_t* codes, const detail::CodeLevels& levels) {
  const __m128i all = unpacked<kFirstLower>(codes);
  f32x16 out;
  out.part[0] = levels_of_8(all, levels);
  out.part[1] = levels_of_8(_mm_srli_si128(all, 8), levels);
  return out;
}
#else
template <bool kFirstLower>
STRATA_HD f32x16 levels_of(const std::uint8_t* codes, const detail::CodeLevels& levels) {
  alignas(64) float lanes[16];
  for (int i = 0; i < kCodesOf16; ++i) {
    lanes[2 * i + (kFirstLower ? 1 : 0)] = levels.of[codes[i] >> 4];
    lanes[2 * i + (kFirstLower ? 0 : 1)] = levels.of[codes[i] & 0xF];
  }
  return f32x16::load(lanes);
}
#endif

/// Blocks of kBlock values.
template <std::int64_t kBlock, bool kFirstLower, class T>
STRATA_HD void dequantize_levels(const std::uint8_t* codes, const detail::CodeLevels& levels,
                                 const float* scales, T* x, std::int64_t blocks) {
  for (std::int64_t block = 0; block < blocks; ++block) {
    const f32x16 scale(scales[block]);
    for (std::int64_t i = 0; i < kBlock; i += 16, codes += kCodesOf16, x += 16)
      (levels_of<kFirstLower>(codes, levels) * scale).store(x);
  }
}
template <class T>
void dequantize_nf4(const std::uint8_t* codes, const float* scales, T* x, std::int64_t blocks) {
  dequantize_levels<detail::kLongBlock, false>(codes, kLevels, scales, x, blocks);
}
template <class T>
void dequantize_first_lower(const std::uint8_t* codes, const float* levels, const float* scales, T* x,
                            std::int64_t blocks) {
  detail::CodeLevels own;  // which no store through x can change
  for (int code = 0; code < 16; ++code) own.of[code] = levels[code];
  dequantize_levels<detail::kShortBlock, true>(codes, own, scales, x, blocks);
}

/// The values of 16 codes of E4M3: as the upper bits of an f32 with another bias.
STRATA_HD f32x16 e4m3_of(const std::uint8_t* codes) {
  const u32x16 bytes = u32x16::load_bytes(codes), magnitude = bytes & u32x16(0x7Fu);
  const f32x16 number = float_of(magnitude | u32x16(0x4B000000u)) - f32x16(8388608.0f);
  const f32x16 normal = float_of(magnitude * u32x16(1u << 20) + u32x16(120u << 23)),
               subnormal = number * f32x16(0x1p-9f), nan = float_of(u32x16(0x7FC00000u));
  const f32x16 finite = select_greater(number, f32x16(7.0f), normal, subnormal),
               all = select_greater(number, f32x16(126.0f), nan, finite);
  return float_of(bits_of(all) | (bytes & u32x16(0x80u)) * u32x16(1u << 24));
}
template <class T>
void dequantize_e4m3(const std::uint8_t* codes, float scale, T* x, std::int64_t n) {
  const f32x16 factor(scale);
  for (std::int64_t i = 0; i < n; i += 16) (e4m3_of(codes + i) * factor).store(x + i);
}

template <class T>
void dequantize_int8(const std::uint8_t* codes, const float* scales, T* x, std::int64_t blocks) {
  constexpr float kPart = 1.0f / 127.0f;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const f32x16 scale(scales[block]);
    for (std::int64_t i = 0; i < detail::kLongBlock; i += 16, codes += 16, x += 16) {
      // As the low bits of the mantissa of 2^23; flipping the sign bit adds 128.
      const u32x16 bytes = (u32x16::load_bytes(codes) ^ u32x16(0x80u)) | u32x16(0x4B000000u);
      ((float_of(bytes) - f32x16(8388608.0f + 128.0f)) * f32x16(kPart) * scale).store(x);
    }
  }
}

/// The bits of the largest magnitude, which is largest for a NaN.
STRATA_HD std::uint32_t largest_of_block(const float* x) {
  u32x16 largest = bits_of(abs_of(f32x16::load(x)));
  for (std::int64_t i = 16; i < detail::kLongBlock; i += 16)
    largest = max_of(largest, bits_of(abs_of(f32x16::load(x + i))));
  alignas(64) float lanes[16];
  float_of(largest).store(lanes);
  std::uint32_t of_lanes = 0;
  for (const float lane : lanes) {
    const auto bits = __builtin_bit_cast(std::uint32_t, lane);
    of_lanes = bits > of_lanes ? bits : of_lanes;
  }
  return of_lanes;
}

void quantize_nf4(const float* x, std::uint8_t* codes, float* scales, std::int64_t blocks) {
  constexpr std::uint32_t kInfinity = 0x7F800000u;
  const f32x16 zero(0.0f), one(1.0f);
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::uint32_t bits = largest_of_block(x);
    const float scale = __builtin_bit_cast(float, bits < kInfinity ? bits : 0x7FC00000u);
    scales[block] = scale;
    const f32x16 inverse(bits < kInfinity ? 1.0f / (scale > 1e-38f ? scale : 1e-38f) : 0.0f);
    for (std::int64_t i = 0; i < detail::kLongBlock; i += 16, codes += kCodesOf16, x += 16) {
      const f32x16 share = bits < kInfinity ? f32x16::load(x) * inverse : zero;
      f32x16 code = zero;  // the number of midpoints that it exceeds
#pragma GCC unroll 15
      for (int middle = 0; middle < 15; ++middle)
        code = code + select_greater(share, f32x16(kMiddles.of[middle]), one, zero);
      std::uint8_t single[16];
      bits_of(code + f32x16(8388608.0f)).store_bytes(single);
      for (int pair = 0; pair < kCodesOf16; ++pair)
        codes[pair] = static_cast<std::uint8_t>(single[2 * pair] << 4 | single[2 * pair + 1]);
    }
  }
}

template <class T>
constexpr detail::DequantizeTable<T> kTable = {&dequantize_nf4<T>, &dequantize_int8<T>,
                                               &dequantize_first_lower<T>, &dequantize_e4m3<T>};

}  // namespace

extern const detail::DequantizeTable<float> dequantize_f32 = kTable<float>;
extern const detail::DequantizeTable<bf16> dequantize_bf16 = kTable<bf16>;
extern const detail::DequantizeTable<f16> dequantize_f16 = kTable<f16>;
extern const detail::QuantizeTable quantize_f32 = {&quantize_nf4};

}  // namespace strata::kernels::STRATA_ISA
