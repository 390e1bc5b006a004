#pragma once

#include <cstdint>

namespace strata {

/// The checkpoint that a command asks for: a step, or one of these.
inline constexpr std::int64_t kNewestCheckpoint = -1, kBestCheckpoint = -2;

}  // namespace strata
