#pragma once

#include <string>

#include <strata/session/lanes.h>

namespace strata {

/// {"h2d": {"bytes": 1, "busy_s": 0.5, "gb_per_s": 2.0}, ..., "compute": {"busy_s": 1.5}, "cpu": {...}}
std::string lanes_json(const MovedBytes& moved, const LaneBusySeconds& busy);
/// A table of the bytes that each lane transferred, its busy time and its rate.
std::string lanes_text(const MovedBytes& moved, const LaneBusySeconds& busy);

}  // namespace strata
