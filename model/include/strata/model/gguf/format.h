#pragma once

#include <cstdint>
#include <string_view>

#include <strata/runtime/status.h>

namespace strata {

/// Format of the values of a tensor in a GGUF file; the numbers are those of ggml_type.
enum class GgufFormat : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q8_0 = 8,  ///< per 32 values of a row: a scale in f16, the largest magnitude / 127, and 32 int8 multiples
  bf16 = 30,
};

constexpr std::string_view to_string(GgufFormat format) noexcept {
  switch (format) {
    case GgufFormat::f32:
      return "f32";
    case GgufFormat::f16:
      return "f16";
    case GgufFormat::q8_0:
      return "q8_0";
    case GgufFormat::bf16:
      return "bf16";
  }
  return "?";
}
/// Errors: `invalid` for a name that is not one of f32, bf16, f16 and q8_0.
Result<GgufFormat> gguf_format(std::string_view name);

}  // namespace strata
