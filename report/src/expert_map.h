#pragma once

#include <string>

#include <strata/report/run_record.h>

namespace strata::detail {

/// A heat map of the load of experts, a row for each layer and steps from left to right, with its legend and
/// a description in words; empty if the run has no loads by layer.
std::string expert_map_html(const RunRecord& run, const std::string& id);

}  // namespace strata::detail
