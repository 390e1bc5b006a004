#pragma once

#include <strata/cpuopt/update_block.h>

#include "update_table.h"

namespace strata::cpuopt::detail {

/// The rule of update_block() for a step; of lamb, that of its moments.
Rule rule_of(const UpdateStep& step) noexcept;

}  // namespace strata::cpuopt::detail
