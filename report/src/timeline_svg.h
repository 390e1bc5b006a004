#pragma once

#include <string>

#include <strata/report/run_record.h>

namespace strata::detail {

/// The lanes of the traced steps; the marks are in a group that a script may draw again.
std::string timeline_svg(const RunRecord::Timeline& timeline, const std::string& id);
/// Where the payloads of each chunk live: a row for each payload.
std::string chunk_map_svg(const RunRecord& run, const std::string& id);

}  // namespace strata::detail
