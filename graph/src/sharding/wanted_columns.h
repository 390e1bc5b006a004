#pragma once

#include <vector>

#include <strata/runtime/cut.h>
#include <strata/graph/program.h>

namespace strata::detail {

/// For each value, how its readers want its columns to be cut, as attention wants those of q|k|v by heads. No
/// segments: in any way. If readers want different cuts, the first one counts.
std::vector<Cut> wanted_columns(const Program& program);

}  // namespace strata::detail
