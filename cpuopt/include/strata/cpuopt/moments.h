#pragma once

#include <cstdint>
#include <span>

#include <strata/cpuopt/math/rounding_noise.h>
#include <strata/cpuopt/math/dynamic_quant.h>
#include <strata/runtime/state_format.h>

namespace strata::cpuopt {

/// One moment of a range that begins at a multiple of kMomentBlock in its tensor.
struct Moment {
  void* values = nullptr;   ///< fp32: f32; bf16: bf16; int8: i8 of the first moment, u8 of the second
  float* scales = nullptr;  ///< int8: one a block of kMomentBlock elements
  Moment at(StateFormat format, std::int64_t offset) const noexcept {
    return {values == nullptr ? nullptr
                              : static_cast<std::byte*>(values) +
                                    static_cast<std::size_t>(offset) * moment_value_bytes(format),
            scales == nullptr ? nullptr : scales + offset / kMomentBlock};
  }
};
/// The moment of `n` elements that lies in one piece at `begin`: values, then scales (moment_bytes()).
inline Moment moment_at(StateFormat format, std::byte* begin, std::int64_t n) noexcept {
  if (begin == nullptr || format != StateFormat::int8) return {begin, nullptr};
  return {begin, reinterpret_cast<float*>(begin + n)};
}

/// From the stored form to f32.
void decode_moment(StateFormat format, MomentKind kind, const Moment& from, std::span<float> into) noexcept;
/// To the nearest stored value: what decode_moment() gave comes back unchanged. int8: a block's scale is its
/// largest magnitude (below 2^-126 the block is zero; with a NaN in it all is NaN, with an infinity what is
/// small); a second moment above zero never becomes zero, by which an update would be divided.
void encode_moment(StateFormat format, MomentKind kind, std::span<const float> from,
                   const Moment& into) noexcept;
/// The same, rounded up or down at random so that the mean is right; `index` is that of the first element in
/// its tensor, its low 32 bits. A moment and the other one of an element draw from different bits.
void encode_moment_stochastic(StateFormat format, MomentKind kind, std::span<const float> from,
                              const Moment& into, RoundingNoise noise, std::uint32_t index) noexcept;

}  // namespace strata::cpuopt
