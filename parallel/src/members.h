#pragma once

#include <vector>

#include <strata/runtime/status.h>

namespace strata::detail {

/// Checks the lists of ranks by which a group is divided: `lists[r]` is that of rank r. Every rank has the
/// lists of all, so that all find the same error. Errors: `invalid`.
Status check_lists(const std::vector<std::vector<int>>& lists);

}  // namespace strata::detail
