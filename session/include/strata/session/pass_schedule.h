#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <strata/chunk/use_schedule.h>
#include <strata/session/ranks/gather_schedule.h>
#include <strata/session/state_plan.h>
#include <strata/session/use_trace.h>

namespace strata {

/// Returns the planner's view of a pass that runs `passes` times a step; `training`: parameters have moments
/// and accumulated gradients. Its fixed bytes are not set.
AccessTrace access_trace(const UseTrace& uses, const StatePlan& plan, std::int32_t passes, bool training);

/// When the chunks of a step are committed.
enum class CommitTiming : std::uint8_t {
  never,       ///< no parameters are trained
  at_end,      ///< after all passes, one position for each
  before_use,  ///< in the next step, when prefetching reaches its first use
};
/// Returns the timing of a plan's training passes.
CommitTiming commit_timing(const StatePlan& plan) noexcept;

/// Passes of one kind, which follow each other.
struct PassRepeat {
  const UseTrace* uses = nullptr;
  std::int32_t passes = 1;
};

/// The accesses of one pass, or of all passes of a step, which are known in advance.
struct PassSchedule {
  /// Where the passes of one kind are in the schedule.
  struct Part {
    std::int32_t first = 0;   ///< position
    std::int32_t length = 0;  ///< positions of one pass
    std::int32_t passes = 1;
    GatherSchedule gathers;  ///< the gathers of one pass
  };

  /// A parameter that is needed on the device.
  struct Fetch {
    std::int32_t position = 0;
    PayloadKey key;
  };
  std::vector<Use> uses;               ///< ascending; used for eviction
  std::vector<Fetch> params;           ///< in order; used for prefetching
  std::vector<ChunkPosition> commits;  ///< every chunk of the trainee once, in the order of the next forward
  /// Every chunk of the trainee with the position of the last pass after which its gradient is complete and
  /// nothing reads its parameters; -1 if the pass never uses the chunk.
  std::vector<ChunkPosition> ready;
  std::vector<Part> parts;
  std::int32_t cycle = 0;    ///< number of positions
  std::int32_t trainee = 0;  ///< whose gradient the passes compute, if any
};
/// The schedule of passes of several kinds, one kind after the other. The last one writes all gradients of
/// the trainee.
PassSchedule make_schedule(std::span<const PassRepeat> repeats, const StatePlan& plan, CommitTiming when,
                           std::int32_t trainee = 0);
inline PassSchedule make_schedule(const PassRepeat& repeat, const StatePlan& plan, CommitTiming when) {
  return make_schedule(std::span(&repeat, 1), plan, when);
}

}  // namespace strata
