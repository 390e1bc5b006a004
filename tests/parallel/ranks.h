#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include <strata/parallel/process_group.h>
#include <strata/parallel/world.h>
#include <strata/runtime/backend/host_backend.h>

namespace strata::test {

/// The objects of one rank in a test: its group, which it may destroy, a stream, and buffers.
struct Rank {
  std::unique_ptr<ProcessGroup>& group_owner;
  ProcessGroup& group;
  Backend& backend;
  Stream stream;
  Buffer allocate(std::size_t bytes) const {
    return must(backend.allocate(MemoryKind::pinned, std::max<std::size_t>(bytes, 1)));
  }
  int index() const { return group.rank(); }
  /// The outcome of a collective, whether it fails when it is queued or when it runs.
  Status finish(Status queued) {
    if (!queued.is_ok()) return queued;
    return backend.synchronize(stream);
  }
  void leave() { group_owner.reset(); }
};

/// The ranks of a test that live in this process: all of them as threads, or one of an MPI run. Every process
/// of a run makes the same calls.
class Ranks {
 public:
  virtual ~Ranks() = default;
  /// Runs `body` for every rank of this process at the same time, each with a new group and a stream that is
  /// waited for in the end; returns the outcomes. A rank whose outcome is an error then leaves the group.
  virtual std::vector<Status> run(const std::function<Status(Rank&)>& body) = 0;
  void must_run(const std::function<Status(Rank&)>& body) {
    for (const Status& status : run(body)) EXPECT_TRUE(status.is_ok()) << status.to_string();
  }
  /// Whether a rank that waits for one that has left is told which one it is.
  virtual bool names_who_left() const { return true; }
  /// Whether streams are those of a fake CUDA runtime: kernels run although earlier work of their stream has
  /// failed, and whoever queues them allocates.
  virtual bool on_fake_cuda() const { return false; }
  virtual void run_worlds(const std::function<void(World&)>& body) = 0;
};

// Defined by each program of the contract's tests, for its transport.
std::vector<int> rank_counts();
std::unique_ptr<Ranks> make_ranks(int size, StreamSchedule schedule);

}  // namespace strata::test
