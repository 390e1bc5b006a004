#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <strata/graph/program.h>

namespace strata::detail {

/// The stage of each region of a decoder's program if its stages have so many layers: what comes before the
/// layers belongs to the first stage, and what comes behind them to the last.
std::vector<std::int32_t> stages_with_layers(const Program& program, std::span<const double> layers);
/// How many layers each of `stages` stages has.
std::vector<double> layers_of_stages(const Program& program, std::span<const std::int32_t> stage_of_region,
                                     std::int32_t stages);

}  // namespace strata::detail
