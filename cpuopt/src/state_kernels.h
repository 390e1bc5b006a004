#include <strata/cpuopt/math/element.h>

#include "master_weights_simd.h"
#include "state_table.h"

namespace strata::cpuopt::STRATA_ISA {
namespace {

template <MasterLayout kLayout>
void split(const float* from, void* param, void* master, std::int64_t n) {
  const Masters<kLayout> masters(param, master);
  for_each_16(n, [&](std::int64_t i, int lanes)
                     STRATA_LANES_INLINE { masters.store(i, load_lanes(from + i, lanes), lanes); });
}
template <MasterLayout kLayout>
void join(const void* param, const void* master, float* into, std::int64_t n) {
  const Masters<kLayout> masters(const_cast<void*>(param), const_cast<void*>(master));  // only read
  for_each_16(n, [&](std::int64_t i, int lanes)
                     STRATA_LANES_INLINE { store_lanes(into + i, masters.load(i, lanes), lanes); });
}

// Load and store the bytes of up to 16 lanes; fewer than 16 are copied through a buffer.
STRATA_HD u32x16 load_quantized(const std::uint8_t* p, int lanes) {
  if (lanes == 16) return u32x16::load_bytes(p);
  std::uint8_t bytes[16] = {};
  for (int i = 0; i < lanes; ++i) bytes[i] = p[i];
  return u32x16::load_bytes(bytes);
}
STRATA_HD void store_quantized(std::uint8_t* p, const u32x16& quantized, int lanes) {
  if (lanes == 16) return quantized.store_bytes(p);
  std::uint8_t bytes[16];
  quantized.store_bytes(bytes);
  for (int i = 0; i < lanes; ++i) p[i] = bytes[i];
}

// The random bits of 16 elements: the low half is for the first moment, the high half for the second.
template <MomentKind kKind>
STRATA_HD u32x16 moment_noise_lanes(const RoundingNoise& noise, std::uint32_t index) {
  const u32x16 bits = noise_bits(u32x16::counting(index), u32x16(noise.add), u32x16(noise.mix));
  return kKind == MomentKind::first ? bits & u32x16(0xFFFFu) : bits >> 16;
}

// Converts bytes to float: the byte becomes the low mantissa bits of 2^23, and the offset is subtracted. For
// the first moment (i8) the sign bit is flipped, which adds 128, and the offset is 128 larger.
template <MomentKind kKind>
STRATA_HD f32x16 quantized_as_float(const u32x16& byte) {
  if constexpr (kKind == MomentKind::first)
    return float_of((byte ^ u32x16(0x80u)) | u32x16(0x4B000000u)) - f32x16(8388608.0f + 128.0f);
  return float_of(byte | u32x16(0x4B000000u)) - f32x16(8388608.0f);
}

template <MomentKind kKind>
void decode_int8(const std::uint8_t* quantized, const float* scales, float* into, std::int64_t n) {
  for (std::int64_t block = 0; block < n; block += kMomentBlock, ++scales) {
    const f32x16 scale(*scales);
    const std::int64_t in_block = n - block < kMomentBlock ? n - block : kMomentBlock;
    for_each_16(in_block, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
      const f32x16 q = quantized_as_float<kKind>(load_quantized(quantized + block + i, lanes));
      store_lanes(into + block + i, dequantize_moment<kKind>(q) * scale, lanes);
    });
  }
}

// The scale of a block: its largest magnitude, compared as bits, so that a NaN is the largest of all. A
// subnormal maximum counts as zero.
STRATA_HD float scale_of(const float* x, std::int64_t n) {
  u32x16 max_bits(0u);
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    max_bits = max_of(max_bits, bits_of(load_lanes(x + i, lanes)) & u32x16(0x7FFFFFFFu));
  });
  alignas(64) float lanes[16];
  float_of(max_bits).store(lanes);
  std::uint32_t bits = 0;
  for (const float lane : lanes) {
    const auto other = __builtin_bit_cast(std::uint32_t, lane);
    bits = other > bits ? other : bits;
  }
  return moment_scale(bits);
}

template <MomentKind kKind>
void encode_int8(const float* from, std::uint8_t* quantized, float* scales, bool stochastic,
                 RoundingNoise noise, std::uint32_t index, std::int64_t n) {
  for (std::int64_t block = 0; block < n; block += kMomentBlock, ++scales) {
    const std::int64_t in_block = n - block < kMomentBlock ? n - block : kMomentBlock;
    const float scale = scale_of(from + block, in_block);
    *scales = scale;
    const f32x16 wide_scale(scale), inverse(inverse_scale(scale));
    for_each_16(in_block, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
      const f32x16 x = load_lanes(from + block + i, lanes);
      f32x16 q = quantize_moment<kKind>(x, wide_scale, inverse);
      if (stochastic) {
        const u32x16 bits = moment_noise_lanes<kKind>(noise, index + static_cast<std::uint32_t>(block + i));
        q = q + noise_offset(float_of((bits >> 1) | u32x16(0x4B000000u)) - f32x16(8388608.0f));
      }
      store_quantized(quantized + block + i, bits_of(q + f32x16(kRoundMagic)), lanes);
    });
  }
}

// Stochastic rounding to bf16: adds 16 random bits to the bits that are cut off. A NaN becomes the canonical
// quiet NaN.
template <MomentKind kKind>
void encode_bf16(const float* from, std::uint16_t* into, RoundingNoise noise, std::uint32_t index,
                 std::int64_t n) {
  for_each_16(n, [&](std::int64_t i, int lanes) STRATA_LANES_INLINE {
    const f32x16 x = load_lanes(from + i, lanes);
    const u32x16 random = moment_noise_lanes<kKind>(noise, index + static_cast<std::uint32_t>(i));
    const u32x16 rounded = (bits_of(quiet_nan(x)) + random) >> 16;
    if (lanes == 16) return rounded.store_halves(into + i);
    std::uint16_t halves[16];
    rounded.store_halves(halves);
    for (int j = 0; j < lanes; ++j) into[i + j] = halves[j];
  });
}

}  // namespace

extern const detail::StateTable state_table = {
    {&split<MasterLayout::f32>, &split<MasterLayout::bf16_split>, &split<MasterLayout::bf16_shadow>,
     &split<MasterLayout::f16_shadow>},
    {&join<MasterLayout::f32>, &join<MasterLayout::bf16_split>, &join<MasterLayout::bf16_shadow>,
     &join<MasterLayout::f16_shadow>},
    {&decode_int8<MomentKind::first>, &decode_int8<MomentKind::second>},
    {&encode_int8<MomentKind::first>, &encode_int8<MomentKind::second>},
    {&encode_bf16<MomentKind::first>, &encode_bf16<MomentKind::second>}};

}  // namespace strata::cpuopt::STRATA_ISA
