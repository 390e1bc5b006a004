#include <strata/runtime/convert.h>

#include <cstring>

#include <strata/runtime/str.h>

namespace strata {
namespace {

Status check(DType dtype, std::size_t bytes, std::size_t elements) {
  if (dtype != DType::f32 && dtype != DType::bf16 && dtype != DType::f16)
    return Status::error(Code::unsupported, str("a conversion between f32 and ", to_string(dtype)));
  if (bytes != elements * size_of(dtype))
    return Status::error(Code::invalid,
                         str(bytes, " bytes of ", to_string(dtype), " for ", elements, " elements"));
  return {};
}

}  // namespace

float f16_to_f32(std::uint16_t bits) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = bits >> 10 & 0x1Fu, mantissa = bits & 0x3FFu;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact in f32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  const std::uint32_t wide = exponent == 31 ? 0xFFu : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
}

std::uint16_t f32_to_f16(float x) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<std::uint16_t>(sign | 0x7E00u | (magnitude >> 13 & 0x3FFu));
  if (magnitude >= 0x477FF000u) return static_cast<std::uint16_t>(sign | 0x7C00u);  // 65,520 rounds up
  if (magnitude < 0x38800000u) {  // subnormal: adding 0.5 leaves multiples of 2^-24 in the low bits
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000u));
  }
  const std::uint32_t rounded = magnitude + 0xFFFu + (magnitude >> 13 & 1u);
  return static_cast<std::uint16_t>(sign | (rounded - 0x38000000u) >> 13);
}

Status widen_to_f32(DType dtype, std::span<const std::byte> from, std::span<float> into) {
  STRATA_TRY(check(dtype, from.size(), into.size()));
  if (dtype == DType::f32) {
    if (!into.empty()) std::memcpy(into.data(), from.data(), from.size());
    return {};
  }
  for (std::size_t i = 0; i < into.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, from.data() + 2 * i, 2);
    into[i] = dtype == DType::bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
  }
  return {};
}

Status narrow_from_f32(std::span<const float> from, DType dtype, std::span<std::byte> into) {
  STRATA_TRY(check(dtype, into.size(), from.size()));
  if (dtype == DType::f32) {
    if (!from.empty()) std::memcpy(into.data(), from.data(), into.size());
    return {};
  }
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::uint16_t bits = dtype == DType::bf16 ? f32_to_bf16(from[i]) : f32_to_f16(from[i]);
    std::memcpy(into.data() + 2 * i, &bits, 2);
  }
  return {};
}

}  // namespace strata
