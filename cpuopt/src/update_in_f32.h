#pragma once

#include <cstdint>

#include <strata/cpuopt/prefetch_spans.h>
#include <strata/cpuopt/update_block.h>

namespace strata::cpuopt::detail {

/// update_block() for a block whose spans are all f32, with the given prefetch.
void update_in_f32(const UpdateStep& step, const UpdateBlock& block, std::int64_t n,
                   Prefetch prefetch) noexcept;

}  // namespace strata::cpuopt::detail
