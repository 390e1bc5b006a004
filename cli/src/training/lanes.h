#pragma once

#include <string>

#include <strata/engine/lanes.h>

namespace strata::cli {

/// {"h2d": {"bytes": 1, "busy_s": 0.5, "gb_per_s": 2.0}, ..., "compute": {"busy_s": 1.5}, "cpu": {...}}
std::string lanes_json(const MovedBytes& moved, const LaneBusySeconds& busy);
/// What each lane carried, how long it worked and how fast it was then, as a table.
std::string lanes_text(const MovedBytes& moved, const LaneBusySeconds& busy);

}  // namespace strata::cli
