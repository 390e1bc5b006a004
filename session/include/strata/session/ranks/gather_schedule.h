#pragma once

#include <vector>

#include <strata/session/ranks/data_parallel.h>
#include <strata/session/use_trace.h>

namespace strata {

/// When the sharded parameters of a pass are gathered. It depends on the accesses and the layout alone, so it
/// is the same on all ranks.
struct GatherSchedule {
  struct Gather {
    ChunkId chunk = 0;
    std::int32_t begin = 0;  ///< it is queued before the work of this position
    std::int32_t first = 0;  ///< position of the first use
    std::int32_t last = 0;   ///< position of the last use, after which the copy is dropped unless it is kept
  };
  std::vector<Gather> gathers;           ///< in the order in which they begin
  std::vector<std::int32_t> by_release;  ///< indices into `gathers`, by `last`; empty if copies are kept
};

/// A gather begins while the `gather_ahead` chunks before it are in use. A chunk that is used again before
/// more than that many others is not released in between; with `keeps_gathered` no chunk is.
GatherSchedule gather_schedule(const UseTrace& uses, const ChunkLayout& layout, const DataParallel& ranks);

}  // namespace strata
