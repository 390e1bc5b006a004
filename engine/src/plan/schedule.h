#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <strata/chunk/chunk_manager.h>
#include <strata/engine/engine.h>

namespace strata {

/// A position in the step and a chunk. Instruction p of micro-batch k has position k * code.size() + p.
using ChunkPosition = std::pair<std::int32_t, ChunkId>;

/// When the chunks of a step are committed.
enum class CommitTiming : std::uint8_t {
  never,       ///< no parameters are trained
  at_end,      ///< after all passes, one position for each
  before_use,  ///< in the next step, when prefetching reaches its first use
};

/// A program's accesses at the positions of a step, which are known in advance.
struct ProgramSchedule {
  std::vector<Use> uses;               ///< ascending; used for eviction
  std::vector<ChunkPosition> params;   ///< parameter accesses in order; used for prefetching
  std::vector<ChunkPosition> commits;  ///< every trained chunk once, in the order of the next forward
  std::vector<ChunkPosition> ready;    ///< last_uses()
  std::int32_t cycle = 0;
};
/// Every trained chunk with the instruction after which its gradient is complete and nothing reads its
/// parameters, in ascending order; the instruction is -1 if the program never uses the chunk.
std::vector<ChunkPosition> last_uses(const LoweredProgram& program, const ChunkLayout& layout);
/// `program` is one of the plan's programs.
ProgramSchedule make_schedule(const LoweredProgram& program, const RunPlan& plan, std::int32_t micro_batches,
                              CommitTiming when);

}  // namespace strata
