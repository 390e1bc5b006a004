#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <strata/parallel/thread_groups.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/threads/thread_pool.h>

namespace strata::test {

/// Ranks as threads on one host backend.
class RankThreads {
 public:
  RankThreads(int size, StreamSchedule schedule)
      : pool_(must(ThreadPool::create(2))),
        backend_(must(create_host_backend(
            {.schedule = schedule, .check = schedule == StreamSchedule::latest_legal}, *pool_, clock_))),
        groups_(must(create_thread_groups(size, *backend_))) {}

  /// What one rank has: its group, a stream, and buffers.
  struct Rank {
    ProcessGroup& group;
    Backend& backend;
    Stream stream;
    Buffer allocate(std::size_t bytes) const {
      return must(backend.allocate(MemoryKind::pinned, std::max<std::size_t>(bytes, 1)));
    }
    int index() const { return group.rank(); }
  };

  /// Runs `body` on the thread of every rank, waits for its stream, and returns the outcomes by rank.
  std::vector<Status> run(const std::function<Status(Rank&)>& body) {
    std::vector<Status> outcomes(groups_.size());
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < groups_.size(); ++r)
      threads.emplace_back([&, r] {
        Rank rank{*groups_[r], *backend_, must(backend_->create_stream(StreamRole::collective))};
        outcomes[r] = body(rank);
        const Status drained = backend_->synchronize(rank.stream);
        if (outcomes[r].is_ok()) outcomes[r] = drained;
      });
    for (std::thread& thread : threads) thread.join();
    return outcomes;
  }
  void must_run(const std::function<Status(Rank&)>& body) {
    for (const Status& status : run(body)) EXPECT_TRUE(status.is_ok()) << status.to_string();
  }
  /// The rank leaves the group.
  void destroy(int rank) { groups_[static_cast<std::size_t>(rank)].reset(); }

 private:
  std::unique_ptr<ThreadPool> pool_;
  SteadyClock clock_;
  std::unique_ptr<Backend> backend_;
  std::vector<std::unique_ptr<ProcessGroup>> groups_;
};

}  // namespace strata::test
