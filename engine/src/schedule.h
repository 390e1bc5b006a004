#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <strata/chunk/chunk_manager.h>
#include <strata/engine/engine.h>

namespace strata {

/// A chunk and a position of the step: p of micro-batch k is k * code.size() + p.
using ChunkAt = std::pair<std::int32_t, ChunkId>;

/// When the chunks of a step are committed.
enum class CommitWhen : std::uint8_t {
  never,       ///< nothing is trained
  at_the_end,  ///< after all passes, one position each
  before_use,  ///< in the next step, when its first use comes into sight
};

/// A program's place in the known order of a step.
struct PassSchedule {
  std::vector<Use> uses;         ///< ascending; what eviction goes by
  std::vector<ChunkAt> params;   ///< parameter accesses in order; what prefetch goes by
  std::vector<ChunkAt> commits;  ///< every chunk that is trained once, in the order of the next forward
  std::vector<ChunkAt> ready;    ///< last_touches()
  std::int32_t cycle = 0;
};
/// Every chunk that is trained at the instruction after which its gradient is complete and nothing reads its
/// parameters, in order; at -1 where the program never touches it.
std::vector<ChunkAt> last_touches(const LoweredProgram& program, const ChunkLayout& layout);
/// Of one of the plan's programs.
PassSchedule schedule_of(const LoweredProgram& program, const RunPlan& plan, std::int32_t micro_batches,
                         CommitWhen when);

}  // namespace strata
