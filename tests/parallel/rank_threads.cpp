#include <thread>

#include <strata/parallel/thread_groups.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/threads/thread_pool.h>

#include "parallel/ranks.h"

namespace strata::test {
namespace {

/// Ranks as threads on one host backend.
class RankThreads final : public Ranks {
 public:
  RankThreads(int size, StreamSchedule schedule)
      : size_(size),
        pool_(must(ThreadPool::create(2))),
        backend_(must(create_host_backend(
            {.schedule = schedule, .check = schedule == StreamSchedule::latest_legal}, *pool_, clock_))) {}

  std::vector<Status> run(const std::function<Status(Rank&)>& body) override {
    auto groups = must(create_thread_groups(size_, *backend_));
    std::vector<Status> outcomes(groups.size());
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < groups.size(); ++r)
      threads.emplace_back([&, r] {
        Rank rank{groups[r], *groups[r], *backend_, must(backend_->create_stream(StreamRole::collective))};
        outcomes[r] = body(rank);
        const Status drained = backend_->synchronize(rank.stream);
        if (outcomes[r].is_ok()) outcomes[r] = drained;
        if (!outcomes[r].is_ok()) rank.leave();
      });
    for (std::thread& thread : threads) thread.join();
    return outcomes;
  }

  void run_worlds(const std::function<void(World&)>& body) override {
    std::vector<std::unique_ptr<World>> worlds = must(create_thread_worlds(size_));
    std::vector<std::thread> threads;
    for (auto& world : worlds) threads.emplace_back([&] { body(*world); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  const int size_;
  std::unique_ptr<ThreadPool> pool_;
  SteadyClock clock_;
  std::unique_ptr<Backend> backend_;
};

}  // namespace

std::vector<int> rank_counts() { return {1, 2, 3, 4, 8}; }
std::unique_ptr<Ranks> make_ranks(int size, StreamSchedule schedule) {
  return std::make_unique<RankThreads>(size, schedule);
}

}  // namespace strata::test
