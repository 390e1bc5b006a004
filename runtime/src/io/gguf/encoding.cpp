#include <strata/runtime/io/gguf/encoding.h>

#include <algorithm>
#include <cstdint>

#include <strata/runtime/convert.h>
#include <strata/runtime/dtype.h>
#include <strata/runtime/str.h>

#include "io/gguf/blocks.h"
#include <strata/runtime/io/gguf/layout.h>

namespace strata {
namespace {

constexpr GgufMix kMixes[] = {GgufMix::f32,    GgufMix::bf16, GgufMix::f16,
                              GgufMix::q8_0,   GgufMix::q6_k, GgufMix::q5_k_m,
                              GgufMix::q4_k_m, GgufMix::q4_0, GgufMix::mxfp4_moe};

}  // namespace

std::string_view to_string(GgufFormat format) noexcept {
  switch (format) {
    case GgufFormat::f32:
      return "f32";
    case GgufFormat::f16:
      return "f16";
    case GgufFormat::q4_0:
      return "q4_0";
    case GgufFormat::q4_1:
      return "q4_1";
    case GgufFormat::q5_0:
      return "q5_0";
    case GgufFormat::q5_1:
      return "q5_1";
    case GgufFormat::q8_0:
      return "q8_0";
    case GgufFormat::q4_k:
      return "q4_k";
    case GgufFormat::q5_k:
      return "q5_k";
    case GgufFormat::q6_k:
      return "q6_k";
    case GgufFormat::bf16:
      return "bf16";
    case GgufFormat::mxfp4:
      return "mxfp4";
  }
  return "?";
}

std::string_view to_string(GgufMix mix) noexcept {
  switch (mix) {
    case GgufMix::f32:
      return "f32";
    case GgufMix::f16:
      return "f16";
    case GgufMix::q4_0:
      return "q4_0";
    case GgufMix::q8_0:
      return "q8_0";
    case GgufMix::q4_k_m:
      return "q4_k_m";
    case GgufMix::q5_k_m:
      return "q5_k_m";
    case GgufMix::q6_k:
      return "q6_k";
    case GgufMix::bf16:
      return "bf16";
    case GgufMix::mxfp4_moe:
      return "mxfp4_moe";
  }
  return "?";
}

Result<GgufMix> gguf_mix(std::string_view name) {
  std::string lower(name);  // files are named after Q4_K_M
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 'a' - 'A' : c);
  std::string all;
  for (const GgufMix mix : kMixes) {
    if (lower == to_string(mix)) return mix;
    all += str(all.empty() ? "" : ", ", to_string(mix));
  }
  return Status::error(Code::invalid, str(name, " is not one of ", all));
}

DType dtype_in_gguf(GgufFormat format) noexcept {
  return format == GgufFormat::f16 ? DType::f16 : format == GgufFormat::bf16 ? DType::bf16 : DType::f32;
}

namespace {

Status check_blocks(GgufFormat format, std::size_t n_values, std::size_t n_bytes) {
  const GgufBlock block = gguf_block(format);
  if (n_values % block.elems == 0 && n_bytes == gguf_bytes(format, n_values)) return {};
  return Status::error(Code::invalid,
                       str(n_values, " values and ", n_bytes, " bytes, but ", to_string(format),
                           " has blocks of ", block.elems, " values in ", block.bytes, " bytes"));
}

}  // namespace

Status encode_gguf(std::span<const float> values, GgufFormat format, std::span<std::byte> into) {
  const GgufBlock block = gguf_block(format);
  if (block.elems == 1) return narrow_from_f32(values, dtype_in_gguf(format), into);
  STRATA_TRY(check_blocks(format, values.size(), into.size()));
  const auto encode = block.elems == 32 ? detail::encode_block_of_32 : detail::encode_block_of_256;
  for (std::size_t i = 0; i * block.elems < values.size(); ++i)
    encode(values.subspan(i * block.elems, block.elems), format, into.data() + i * block.bytes);
  return {};
}

Status decode_gguf(std::span<const std::byte> bytes, GgufFormat format, std::span<float> into) {
  const GgufBlock block = gguf_block(format);
  if (block.elems == 1) return widen_to_f32(dtype_in_gguf(format), bytes, into);
  STRATA_TRY(check_blocks(format, into.size(), bytes.size()));
  const auto decode = block.elems == 32 ? detail::decode_block_of_32 : detail::decode_block_of_256;
  for (std::size_t i = 0; i * block.elems < into.size(); ++i)
    decode(bytes.data() + i * block.bytes, format, into.subspan(i * block.elems, block.elems));
  return {};
}

}  // namespace strata
