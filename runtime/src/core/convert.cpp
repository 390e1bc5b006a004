#include <strata/runtime/convert.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include <strata/runtime/str.h>

namespace strata {
namespace {

Status check(DType dtype, std::size_t bytes, std::size_t elements) {
  if (dtype != DType::f32 && dtype != DType::bf16 && dtype != DType::f16)
    return Status::error(Code::unsupported, str("cannot convert between f32 and ", to_string(dtype)));
  if (bytes != elements * size_of(dtype))
    return Status::error(Code::invalid,
                         str(bytes, " bytes of ", to_string(dtype), " do not match ", elements, " elements"));
  return {};
}

}  // namespace

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

std::size_t first_non_finite(std::span<const float> values) noexcept {
  constexpr std::uint32_t kExponent = 0x7F800000u;
  constexpr std::size_t kBlock = 4096;  // no early exit inside a block, so that the compiler vectorizes the
                                        // loop
  const auto is_one = [](float x) { return (std::bit_cast<std::uint32_t>(x) & kExponent) == kExponent; };
  for (std::size_t at = 0; at < values.size(); at += kBlock) {
    const auto block = values.subspan(at, std::min(kBlock, values.size() - at));
    unsigned found = 0;
    for (const float x : block) found |= is_one(x) ? 1u : 0u;
    if (found != 0)
      return at + static_cast<std::size_t>(std::find_if(block.begin(), block.end(), is_one) - block.begin());
  }
  return values.size();
}

}  // namespace strata
