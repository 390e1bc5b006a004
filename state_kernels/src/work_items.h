#pragma once

#include <cstdint>

#include <strata/simd/norm.h>
#include <strata/runtime/state_format.h>

namespace strata::state_kernels::detail {

/// Elements per work item on the host: a multiple of the elements of a norm partial and of a moment block, so
/// that the split into work items does not change bits.
inline constexpr std::int64_t kItemElems = 65536;
static_assert(kItemElems % simd::kNormPartialElems == 0 && kItemElems % kMomentBlock == 0);

}  // namespace strata::state_kernels::detail
