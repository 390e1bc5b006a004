#pragma once

#include <vector>

#include <strata/chunk/layout.h>
#include <strata/session/use_trace.h>

namespace strata::detail {

/// Every chunk that the trainee updates with the position after which its gradient is complete and nothing
/// reads its parameters, in ascending order; the position is -1 if the pass never uses the chunk.
std::vector<ChunkPosition> last_uses(const UseTrace& uses, const ChunkLayout& layout, std::int32_t trainee);

}  // namespace strata::detail
