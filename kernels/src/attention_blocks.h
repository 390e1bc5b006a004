#pragma once

#include <algorithm>
#include <cstdint>

namespace strata::kernels::detail {

inline constexpr std::int64_t kQueryRows = 64;  // a block of scores is kQueryRows x seq

/// How many (batch, head) pairs are worked on at a time, each with its own part of the workspace; a bound on
/// both.
constexpr std::int64_t attention_slots(std::int64_t pairs) noexcept {
  return std::min<std::int64_t>(pairs, 32);
}
constexpr std::int64_t attention_pairs(std::int64_t tokens, std::int64_t heads, std::int64_t seq) noexcept {
  return seq > 0 ? tokens / seq * heads : 0;
}

}  // namespace strata::kernels::detail
