// Quantizers of single blocks. They compute with the same operations in the same order as ggml's reference
// quantizers (ggml-quants.c of ggml-org/ggml), so that their bytes are the same: another sum may choose
// another code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <strata/runtime/io/gguf/format.h>
#include <strata/runtime/float16.h>

namespace strata::detail {

/// Blocks of 32 values: q4_0, q4_1, q5_0, q5_1, q8_0 and mxfp4.
void encode_block_of_32(std::span<const float> values, GgufFormat format, std::byte* into);
void decode_block_of_32(const std::byte* from, GgufFormat format, std::span<float> values);
/// Blocks of 256 values: q4_k, q5_k and q6_k.
void encode_block_of_256(std::span<const float> values, GgufFormat format, std::byte* into);
void decode_block_of_256(const std::byte* from, GgufFormat format, std::span<float> values);

inline void put_f16(float value, std::byte* into) {
  const std::uint16_t bits = f32_to_f16(value);
  std::memcpy(into, &bits, sizeof bits);
}
inline float get_f16(const std::byte* from) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof bits);
  return f16_to_f32(bits);
}
inline unsigned bits_of(std::byte byte) { return std::to_integer<unsigned>(byte); }

}  // namespace strata::detail
