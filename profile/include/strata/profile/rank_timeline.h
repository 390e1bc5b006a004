#pragma once

#include <span>
#include <string>

#include <strata/runtime/trace/trace.h>

namespace strata {

/// A picture of the last `step_s` seconds of tracks that forecast_ranks() has recorded, as SVG: for each rank
/// what it computes (forward, gradients of inputs, gradients of weights), and below it what it exchanges.
std::string rank_timeline_svg(std::span<const Trace::TrackSpans> tracks, double step_s,
                              const std::string& title);

}  // namespace strata
