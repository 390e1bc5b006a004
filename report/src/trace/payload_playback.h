#pragma once

#include <vector>

#include <strata/report/run_record.h>
#include <strata/report/run_trace.h>

namespace strata::detail {

/// Where payloads were in the last step that the trace has wholly, from its notes and the homes of the plan;
/// none
/// (`us` = 0) if nothing moved. A copy arrives when its move ends, and is gone once the last work on it has
/// ended.
RunRecord::Playback payload_playback(const RankTrace& trace, const std::vector<RunRecord::Homes>& homes);

}  // namespace strata::detail
