#pragma once

#include <cstdint>
#include <limits>

#include <strata/runtime/backend/sim_options.h>

namespace strata::detail {

inline constexpr double kNever = std::numeric_limits<double>::infinity();

/// A point of a lane: the end of its entry `number`.
struct SimPoint {
  SimLane lane = SimLane::compute;
  std::uint64_t number = 0;
};

}  // namespace strata::detail
