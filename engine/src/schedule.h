#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <strata/chunk/chunk_manager.h>
#include <strata/engine/lowering.h>

namespace strata {

/// A program's place in the known order of a step: position p of micro-batch k is k * code.size() + p, and
/// the commit of chunk c comes at n * code.size() + c.
struct PassSchedule {
  std::vector<Use> uses;  ///< ascending; what eviction goes by
  std::vector<std::pair<std::int32_t, ChunkId>>
      params;  ///< parameter accesses in order; what prefetch goes by
  std::int32_t cycle = 0;
};
PassSchedule schedule_of(const LoweredProgram& program, const ChunkLayout& layout, const Placement& placement,
                         std::int32_t micro_batches, bool with_commit);

}  // namespace strata
