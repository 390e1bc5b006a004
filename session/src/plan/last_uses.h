#pragma once

#include <vector>

#include <strata/chunk/layout.h>
#include <strata/session/use_trace.h>

namespace strata::detail {

/// Every trained chunk with the position after which its gradient is complete and nothing reads its
/// parameters, in ascending order; the position is -1 if the pass never uses the chunk.
std::vector<ChunkPosition> last_uses(const UseTrace& uses, const ChunkLayout& layout);

}  // namespace strata::detail
