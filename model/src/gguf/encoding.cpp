#include "gguf/encoding.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include <strata/runtime/convert.h>
#include <strata/runtime/dtype.h>
#include <strata/runtime/float16.h>
#include <strata/runtime/str.h>

#include "gguf/layout.h"

namespace strata {

Result<GgufFormat> gguf_format(std::string_view name) {
  for (const GgufFormat format : {GgufFormat::f32, GgufFormat::bf16, GgufFormat::f16, GgufFormat::q8_0})
    if (name == to_string(format)) return format;
  return Status::error(Code::invalid, str(name, " is not one of f32, bf16, f16, q8_0"));
}

namespace detail {
namespace {

constexpr auto kBlock = static_cast<std::size_t>(kQ8BlockElems);

void encode_block(std::span<const float> values, std::byte* into) {
  float largest = 0;
  for (const float x : values) largest = std::max(largest, std::abs(x));
  const float scale = largest / 127.0f;
  const float inverse = scale > 0 ? 1.0f / scale : 0.0f;
  const std::uint16_t bits = f32_to_f16(scale);
  std::memcpy(into, &bits, sizeof bits);
  // The inverse of a scale near the smallest numbers is infinite. In f16 such a scale is 0.
  for (std::size_t i = 0; i < kBlock; ++i) {
    const float multiple = std::isfinite(inverse) ? std::round(values[i] * inverse) : 0.0f;
    into[sizeof bits + i] = static_cast<std::byte>(static_cast<std::int8_t>(multiple));
  }
}

void decode_block(const std::byte* from, std::span<float> values) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof bits);
  const float scale = f16_to_f32(bits);
  for (std::size_t i = 0; i < kBlock; ++i)
    values[i] = static_cast<float>(static_cast<std::int8_t>(from[sizeof bits + i])) * scale;
}

Status check_blocks(std::size_t n_values, std::size_t n_bytes) {
  if (n_values % kBlock == 0 && n_bytes == n_values / kBlock * kQ8BlockBytes) return {};
  return Status::error(Code::invalid,
                       str(n_values, " values and ", n_bytes, " bytes, but q8_0 has blocks of ", kBlock,
                           " values in ", kQ8BlockBytes, " bytes"));
}

DType dtype_in_gguf(GgufFormat format) {
  return format == GgufFormat::f16 ? DType::f16 : format == GgufFormat::bf16 ? DType::bf16 : DType::f32;
}

}  // namespace

Status encode_gguf(std::span<const float> values, GgufFormat format, std::span<std::byte> into) {
  if (format != GgufFormat::q8_0) return narrow_from_f32(values, dtype_in_gguf(format), into);
  STRATA_TRY(check_blocks(values.size(), into.size()));
  for (std::size_t i = 0; i * kBlock < values.size(); ++i)
    encode_block(values.subspan(i * kBlock, kBlock), into.data() + i * kQ8BlockBytes);
  return {};
}

Status decode_gguf(std::span<const std::byte> bytes, GgufFormat format, std::span<float> into) {
  if (format != GgufFormat::q8_0) return widen_to_f32(dtype_in_gguf(format), bytes, into);
  STRATA_TRY(check_blocks(into.size(), bytes.size()));
  for (std::size_t i = 0; i * kBlock < into.size(); ++i)
    decode_block(bytes.data() + i * kQ8BlockBytes, into.subspan(i * kBlock, kBlock));
  return {};
}

}  // namespace detail
}  // namespace strata
