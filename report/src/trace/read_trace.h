#pragma once

#include <string>

#include <strata/report/run_record.h>
#include <strata/report/run_trace.h>

namespace strata::detail {

/// A file of Trace::write(), of a rank. Errors: `corrupt`.
Result<RankTrace> read_rank_trace(Io& io, const std::string& path, int rank);

/// The spans of a trace for a page; the last ones if there are more than it can hold.
RunRecord::Timeline timeline_of(const RankTrace& trace);

}  // namespace strata::detail
