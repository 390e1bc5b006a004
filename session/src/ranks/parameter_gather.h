#pragma once

#include <vector>

#include <strata/session/ranks/gather_schedule.h>
#include <strata/session/state_context.h>

namespace strata::detail {

/// Gathers the parameters of sharded chunks before their use and drops the copies after it, as the schedule
/// says. All ranks call it in the same order. Not thread-safe; allocates nothing after construction.
class ParameterGather {
 public:
  explicit ParameterGather(StateContext& context)
      : context_(context), is_current_(context.plan().layout.n_chunks(), false) {}

  /// A pass over `schedule` begins.
  void begin_pass() noexcept { next_ = next_release_ = 0; }
  /// The next chunk to be gathered before the work at position `i`; -1 if there is none. Its pending update
  /// must be queued before gather().
  std::int64_t due(const GatherSchedule& schedule, std::int32_t i);
  Status gather(ChunkId chunk);
  /// Drops the copies whose last use was at position `i`.
  Status release(const GatherSchedule& schedule, std::int32_t i);

  /// Whether the gathered copy of the chunk has the present parameters.
  bool is_current(ChunkId chunk) const noexcept { return is_current_[chunk]; }
  /// The parameters change.
  void invalidate() noexcept { is_current_.assign(is_current_.size(), false); }
  /// After a failure: drops what has no home.
  void abandon() noexcept;

 private:
  StateContext& context_;
  std::vector<bool> is_current_;  // indexed by chunk
  std::size_t next_ = 0;          // index into GatherSchedule::gathers
  std::size_t next_release_ = 0;  // index into GatherSchedule::by_release
};

}  // namespace strata::detail
