#pragma once

#include <algorithm>
#include <cstdint>

#include <strata/offload/placement_request.h>
#include <strata/runtime/units.h>

namespace strata::detail {

inline constexpr double kNoGain = 1.02;  // smaller gains are within the error of a forecast

inline bool is_limited(std::uint64_t bytes) { return bytes != kUnlimited && bytes > 0; }
inline std::uint64_t scaled(std::uint64_t bytes, double by) {
  return std::max<std::uint64_t>(
      static_cast<std::uint64_t>(static_cast<double>(bytes) * by) / kPageBytes * kPageBytes, kPageBytes);
}
/// `bytes` scaled by `by`, but at most `limits`, unless the user's budget already exceeds it.
inline std::uint64_t scaled_within(std::uint64_t bytes, double by, std::uint64_t limits) {
  return std::min(scaled(bytes, by), std::max(bytes, limits / kPageBytes * kPageBytes));
}

}  // namespace strata::detail
