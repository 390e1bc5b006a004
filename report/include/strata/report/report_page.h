#pragma once

#include <string>
#include <vector>

#include <strata/report/run_record.h>

namespace strata {

/// One self-contained page about a run, or about several beside each other: no file and no network is needed
/// to read it. Its data is in the element "data" as JSON: every figure of every step.
std::string report_html(const std::vector<RunRecord>& runs);
/// The same in short for a terminal of `columns` columns.
std::string report_text(const std::vector<RunRecord>& runs, int columns);
/// The differences between the first run and each of the others: configuration, plan, speed, losses and the
/// bits of the final states.
std::string comparison_text(const std::vector<RunRecord>& runs);

}  // namespace strata
