#pragma once

#include <cstdint>
#include <string_view>

#include <strata/runtime/status.h>

namespace strata {

/// Format of the values of a tensor in a GGUF file; the numbers are those of ggml_type. In blocks of 32 or
/// 256 values of a row, each value has a code of some bits; floats of a block are f16.
enum class GgufFormat : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,   ///< 32: scale (code - 8)
  q4_1 = 3,   ///< 32: scale code + minimum
  q5_0 = 6,   ///< 32: scale (code - 16)
  q5_1 = 7,   ///< 32: scale code + minimum
  q8_0 = 8,   ///< 32: scale code, the scale being the largest magnitude / 127
  q4_k = 12,  ///< 256: per 32 values a scale and a minimum of 6 bits, multiples of two floats
  q5_k = 13,  ///< 256: likewise
  q6_k = 14,  ///< 256: per 16 values a scale of 8 bits, multiples of one float: scale (code - 32)
  bf16 = 30,
  mxfp4 = 39,  ///< 32: E2M1 (OCP Microscaling Formats 1.0), times a power of two of 8 bits
};

/// The mix of formats that a file is in; the numbers are those of llama_ftype. Matrices have the formats that
/// llama.cpp's quantizer gives them without an importance matrix; vectors, norms and positions stay f32.
enum class GgufMix : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q8_0 = 7,
  q4_k_m = 15,
  q5_k_m = 17,
  q6_k = 18,
  bf16 = 32,
  mxfp4_moe = 38,  ///< experts in mxfp4, the rest in q8_0
};

std::string_view to_string(GgufFormat format) noexcept;
std::string_view to_string(GgufMix mix) noexcept;
/// Errors: `invalid` for a name that is none, with all names.
Result<GgufMix> gguf_mix(std::string_view name);

}  // namespace strata
