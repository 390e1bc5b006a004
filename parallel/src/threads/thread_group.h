#pragma once

#include <memory>
#include <span>
#include <vector>

#include <strata/parallel/process_group.h>

#include "threads/meeting.h"

namespace strata::detail {

inline constexpr int kMaxThreadRanks = 16;  // HostCall declares at most 20 memory accesses

/// The objects that the ranks of a group share.
struct SharedGroup {
  SharedGroup(int n_ranks, Backend& on, WatchedRanks watched = {});
  /// The meeting of two ranks for data that goes from one to the other.
  Meeting& pair(int from, int to) {
    return *pairs[static_cast<std::size_t>(from) * static_cast<std::size_t>(size) +
                  static_cast<std::size_t>(to)];
  }

  const int size;
  Backend& backend;
  const WatchedRanks watched_ranks;
  Meeting all;
  std::vector<std::unique_ptr<Meeting>> pairs;
};

class ThreadGroup final : public ProcessGroup {
 public:
  ThreadGroup(std::shared_ptr<SharedGroup> shared, int rank) : shared_(std::move(shared)), rank_(rank) {}
  ~ThreadGroup() override;
  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return shared_->size; }
  Status queue(const Collective& collective, Stream& stream) override;
  Result<std::unique_ptr<ProcessGroup>> split(std::span<const int> members) override;
  GroupCounters counters() const noexcept override { return counters_; }

 private:
  using Contributions = std::span<const Contribution>;

  /// Meets the others, who learn of `status`, and makes `stream` wait for the events of all of them.
  /// Errors: the first one of any rank, the same everywhere.
  Result<Contributions> meet(Meeting& meeting, int as, const Collective& call, Status status, Stream& stream);
  /// The work of this rank, after all ranks have reached the collective.
  Status queue_work(const Collective& call, Contributions all, Stream& stream);
  Status queue_all_reduce(const Collective& call, Contributions all, Stream& stream);
  Status queue_reduction(const Collective& call, Contributions all, BufferView into, std::size_t offset,
                         Stream& stream);
  /// The others no longer wait for this rank.
  void leave();
  Status copy(BufferView to, const std::byte* from, Stream& stream);

  const std::shared_ptr<SharedGroup> shared_;
  const int rank_;
  GroupCounters counters_;
};

/// As create_thread_groups(), of a world whose ranks are watched.
Result<std::vector<std::unique_ptr<ProcessGroup>>> create_watched_groups(int size, Backend& backend,
                                                                         WatchedRanks watched);

}  // namespace strata::detail
