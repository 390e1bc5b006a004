#pragma once

#include <string>

#include <strata/report/run_record.h>

namespace strata::detail {

/// The spans of a file of Trace::write(); the last ones if there are more than a page can hold. Errors:
/// `corrupt`.
Result<RunRecord::Timeline> read_trace(Io& io, const std::string& path);

}  // namespace strata::detail
