#pragma once

#include <array>
#include <limits>
#include <string>

#include <strata/chunk/types.h>
#include <strata/runtime/str.h>

namespace strata::detail {

inline constexpr std::int32_t kNever = std::numeric_limits<std::int32_t>::max();
inline constexpr std::int32_t kImmediately = -1;  ///< needed_at of a payload that is needed now
inline constexpr std::array<Tier, 2> kMemoryTiers = {Tier::device, Tier::pinned};

inline std::string describe(PayloadKey key) { return str("chunk ", key.chunk, " ", to_string(key.payload)); }

}  // namespace strata::detail
