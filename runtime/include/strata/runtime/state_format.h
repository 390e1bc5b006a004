#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace strata {

/// How optimizer moments are held. The master is exact in every format.
enum class StateFormat : std::uint8_t {
  fp32,  ///< as computed
  bf16,  ///< 16 bits, rounded stochastically
  int8,  ///< 8-bit dynamic-range codes and one f32 scale a block of kMomentBlock elements
};
constexpr std::string_view to_string(StateFormat format) noexcept {
  switch (format) {
    case StateFormat::fp32:
      return "fp32";
    case StateFormat::bf16:
      return "bf16";
    case StateFormat::int8:
      return "int8";
  }
  return "unknown";
}

/// Elements of a block of int8 moments, in tensor coordinates.
inline constexpr std::int64_t kMomentBlock = 256;

/// Bytes of the values alone (not the scales) of one element.
constexpr std::size_t moment_value_bytes(StateFormat format) noexcept {
  return format == StateFormat::fp32 ? 4 : format == StateFormat::bf16 ? 2 : 1;
}
/// Bytes of one moment of `n` elements; int8: n codes, then the scales. `n` is a multiple of kMomentBlock.
constexpr std::size_t moment_bytes(StateFormat format, std::int64_t n) noexcept {
  const auto values = static_cast<std::size_t>(n) * moment_value_bytes(format);
  if (format != StateFormat::int8) return values;
  return values + static_cast<std::size_t>(n / kMomentBlock) * sizeof(float);
}

}  // namespace strata
