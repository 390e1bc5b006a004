#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace strata {

/// Storage format of optimizer moments. The master weights are exact in every format.
enum class StateFormat : std::uint8_t {
  fp32,  ///< f32, not rounded
  bf16,  ///< rounded stochastically
  int8,  ///< 8-bit dynamic-range codes and one f32 scale per block of kMomentBlock elements
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

/// Elements per block of int8 moments, in tensor coordinates.
inline constexpr std::int64_t kMomentBlock = 256;

/// Bytes of one element's value, without its share of the scale.
constexpr std::size_t moment_value_bytes(StateFormat format) noexcept {
  return format == StateFormat::fp32 ? 4 : format == StateFormat::bf16 ? 2 : 1;
}
/// Bytes of one moment for `n` elements, a multiple of kMomentBlock. For int8: n codes, then the scales.
constexpr std::size_t moment_bytes(StateFormat format, std::int64_t n) noexcept {
  const auto values = static_cast<std::size_t>(n) * moment_value_bytes(format);
  if (format != StateFormat::int8) return values;
  return values + static_cast<std::size_t>(n / kMomentBlock) * sizeof(float);
}

}  // namespace strata
