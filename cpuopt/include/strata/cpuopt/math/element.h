#pragma once

#include <cstdint>

#include <strata/cpuopt/master.h>
#include <strata/cpuopt/math/rounding_noise.h>
#include <strata/cpuopt/math/dynamic_quant.h>
#include <strata/simd/math/master.h>
#include <strata/cpuopt/math/rules.h>
#include <strata/runtime/float16.h>

/// The optimizer step of one element, as one GPU thread runs it. The mathematics is that of the SIMD kernels,
/// so the bits are the same.
namespace strata::cpuopt {

using namespace simd;

template <MasterLayout kLayout>
STRATA_HD float load_master_at(const void* param, const void* master, std::int64_t i) {
  if constexpr (kLayout == MasterLayout::f32) return static_cast<const float*>(param)[i];
  if constexpr (kLayout == MasterLayout::bf16_split)
    return join_master(static_cast<const bf16*>(param)[i], static_cast<const std::uint16_t*>(master)[i]);
  return static_cast<const float*>(master)[i];
}
template <MasterLayout kLayout>
STRATA_HD void store_master_at(void* param, void* master, std::int64_t i, float x) {
  if constexpr (kLayout == MasterLayout::f32) {
    static_cast<float*>(param)[i] = x;
  } else if constexpr (kLayout == MasterLayout::bf16_split) {
    const SplitMaster split = split_master(x);
    static_cast<bf16*>(param)[i] = split.high;
    static_cast<std::uint16_t*>(master)[i] = split.low;
  } else {
    static_cast<float*>(master)[i] = x;
    if constexpr (kLayout == MasterLayout::bf16_shadow) static_cast<bf16*>(param)[i] = from_f32<bf16>(x);
    if constexpr (kLayout == MasterLayout::f16_shadow) static_cast<f16*>(param)[i] = from_f32<f16>(x);
  }
}

/// The step of one element, with moments in f32. `g` is not scaled by grad_factor yet.
template <class Rule, MasterLayout kLayout>
STRATA_HD void update_at(const UpdateScalars<float>& s, void* param, void* master, float& m, float& v,
                         float g, std::int64_t i) {
  const float p = Rule::update(load_master_at<kLayout>(param, master, i), g * s.grad_factor, m, v, s);
  if constexpr (!Rule::kFacts.tensor_norms) store_master_at<kLayout>(param, master, i, p);
}

/// The 16 random bits for one moment of the element whose index has the low 32 bits `index`.
template <MomentKind kKind>
STRATA_HD std::uint32_t moment_noise(const RoundingNoise& noise, std::uint32_t index) {
  const std::uint32_t bits = noise_bits(index, noise.add, noise.mix);
  return kKind == MomentKind::first ? bits & 0xFFFFu : bits >> 16;
}
/// Rounds a moment to bf16 stochastically.
STRATA_HD bf16 round_to_bf16(float x, std::uint32_t random) {
  const std::uint32_t bits = x == x ? __builtin_bit_cast(std::uint32_t, x) : 0x7FC00000u;
  return {static_cast<std::uint16_t>((bits + random) >> 16)};
}
/// A block's scale from the maximum of its magnitudes' bits; a subnormal maximum gives zero.
STRATA_HD float moment_scale(std::uint32_t bits) {
  if (bits < 0x00800000u) return 0.0f;
  return __builtin_bit_cast(float, bits > 0x7F800000u ? 0x7FC00000u : bits);
}
STRATA_HD float inverse_scale(float scale) { return scale == 0.0f ? 0.0f : 1.0f / scale; }
/// Quantizes a moment to a byte with stochastic rounding; `inverse` is inverse_scale(scale).
template <MomentKind kKind>
STRATA_HD std::uint8_t quantize_moment_stochastic(float x, float scale, float inverse, std::uint32_t random) {
  const float q = quantize_moment<kKind>(x, scale, inverse);
  const float rounded = (q + noise_offset(static_cast<float>(random >> 1))) + kRoundMagic;
  return static_cast<std::uint8_t>(__builtin_bit_cast(std::uint32_t, rounded));
}
template <MomentKind kKind>
STRATA_HD std::uint8_t quantize_moment_stochastic(float x, float scale, std::uint32_t random) {
  return quantize_moment_stochastic<kKind>(x, scale, inverse_scale(scale), random);
}
template <MomentKind kKind>
STRATA_HD float dequantize_moment_byte(std::uint8_t byte, float scale) {
  const int q = kKind == MomentKind::first ? static_cast<std::int8_t>(byte) : byte;
  return dequantize_moment<kKind>(static_cast<float>(q)) * scale;
}

}  // namespace strata::cpuopt
