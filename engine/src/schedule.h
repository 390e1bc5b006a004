#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <strata/chunk/chunk_manager.h>
#include <strata/engine/engine.h>

namespace strata {

/// A chunk and a position of the step: p of micro-batch k is k * code.size() + p.
using ChunkPosition = std::pair<std::int32_t, ChunkId>;

/// When the chunks of a step are committed.
enum class CommitTiming : std::uint8_t {
  never,       ///< nothing is trained
  at_end,      ///< after all passes, one position each
  before_use,  ///< in the next step, when its first use comes into sight
};

/// A program's place in the known order of a step.
struct ProgramSchedule {
  std::vector<Use> uses;               ///< ascending; what eviction goes by
  std::vector<ChunkPosition> params;   ///< parameter accesses in order; what prefetch goes by
  std::vector<ChunkPosition> commits;  ///< every chunk that is trained once, in the order of the next forward
  std::vector<ChunkPosition> ready;    ///< last_uses()
  std::int32_t cycle = 0;
};
/// Every chunk that is trained at the instruction after which its gradient is complete and nothing reads its
/// parameters, in order; at -1 where the program never touches it.
std::vector<ChunkPosition> last_uses(const LoweredProgram& program, const ChunkLayout& layout);
/// Of one of the plan's programs.
ProgramSchedule make_schedule(const LoweredProgram& program, const RunPlan& plan, std::int32_t micro_batches,
                              CommitTiming when);

}  // namespace strata
