#pragma once

#include <cstdint>

namespace strata::detail {

/// Two token ids as one key; keys compare as (left, right) do.
constexpr std::uint64_t pair_key(std::int32_t left, std::int32_t right) noexcept {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

}  // namespace strata::detail
