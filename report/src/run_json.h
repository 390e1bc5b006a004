#pragma once

#include <string>
#include <vector>

#include <strata/report/run_record.h>

namespace strata::detail {

/// The data of a page's runs: steps, and each series as an array, or as one figure if it is the same in all
/// steps; validations, and the spans of the timeline.
std::string runs_json(const std::vector<RunRecord>& runs);

}  // namespace strata::detail
