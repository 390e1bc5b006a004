#pragma once

#include <string>

#include <strata/runtime/trace/stall_meter.h>

namespace strata {

/// Writes `"compute_s": 1.5, "exposed_wait_s": {"h2d": 0.25, ...}` and returns its length, at most `n`. Does
/// not allocate.
std::size_t write_stalls_json(char* to, std::size_t n, const StallTimes& times) noexcept;
std::string stalls_json(const StallTimes& times);
/// One sentence: the share of the time that was spent computing, and what the rest was mostly spent waiting
/// for.
std::string bottleneck_text(const StallTimes& times);

}  // namespace strata
