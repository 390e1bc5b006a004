#pragma once

#include <strata/cpuopt/prefetch.h>
#include <strata/cpuopt/update.h>

namespace strata::cpuopt::detail {

/// update_block() of a block that is f32 in all its spans, with a choice of what is asked for ahead.
void update_in_f32(const UpdateStep& step, const UpdateBlock& block, std::int64_t n,
                   Prefetch prefetch) noexcept;

}  // namespace strata::cpuopt::detail
