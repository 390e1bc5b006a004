#pragma once

#include <cstdint>
#include <span>

#include <strata/cpuopt/math/rounding_noise.h>
#include <strata/cpuopt/math/dynamic_quant.h>
#include <strata/runtime/state_format.h>

namespace strata::cpuopt {

/// One moment of a range of elements that begins at a multiple of kMomentBlock in its tensor.
struct Moment {
  void* values = nullptr;   ///< fp32: f32; bf16: bf16; int8: i8 of the first moment, u8 of the second
  float* scales = nullptr;  ///< int8: one per block of kMomentBlock elements
  Moment at(StateFormat format, std::int64_t offset) const noexcept {
    return {values == nullptr ? nullptr
                              : static_cast<std::byte*>(values) +
                                    static_cast<std::size_t>(offset) * moment_value_bytes(format),
            scales == nullptr ? nullptr : scales + offset / kMomentBlock};
  }
};
/// The moment of `n` elements that is stored contiguously at `begin`: values, then scales (moment_bytes()).
inline Moment moment_at(StateFormat format, std::byte* begin, std::int64_t n) noexcept {
  if (begin == nullptr || format != StateFormat::int8) return {begin, nullptr};
  return {begin, reinterpret_cast<float*>(begin + n)};
}

/// Converts a stored moment to f32.
void decode_moment(StateFormat format, MomentKind kind, const Moment& from, std::span<float> into) noexcept;
/// Stores a moment, rounded to the nearest stored value; the result of decode_moment() is stored unchanged.
/// int8: a block's scale is its largest magnitude. If that is below 2^-126, the block becomes zero; if the
/// block has a NaN, all of it becomes NaN; if it has an infinity, elements that quantize to 0 become NaN. A
/// second moment above zero never becomes zero, since the update divides by it.
void encode_moment(StateFormat format, MomentKind kind, std::span<const float> from,
                   const Moment& into) noexcept;
/// The same with stochastic rounding: up or down at random, so that the expected value is exact. `index` is
/// the low 32 bits of the first element's index in its tensor. The two moments of an element use different
/// random bits.
void encode_moment_stochastic(StateFormat format, MomentKind kind, std::span<const float> from,
                              const Moment& into, RoundingNoise noise, std::uint32_t index) noexcept;

}  // namespace strata::cpuopt
