// The contract's tests with processes as ranks: mpirun starts this program, and every process runs all tests
// in the same order. With a number as the last argument, each process has so many ranks.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include <strata/parallel/mpi_world.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/threads/thread_pool.h>

#include "parallel/ranks.h"

namespace strata::test {
namespace {

std::vector<std::unique_ptr<World>> worlds;  // live as long as the program: MPI starts once

class RankProcess final : public Ranks {
 public:
  // A backend of its own for each rank: under latest_legal, work of one waits for that of another.
  explicit RankProcess(StreamSchedule schedule) : pool_(must(ThreadPool::create(1))) {
    for (std::size_t i = 0; i < worlds.size(); ++i)
      backends_.push_back(must(create_host_backend(
          {.schedule = schedule, .check = schedule == StreamSchedule::latest_legal}, *pool_, clock_)));
  }

  std::vector<Status> run(const std::function<Status(Rank&)>& body) override {
    std::vector<Status> outcomes(worlds.size());
    for_each_world([&](std::size_t i) { outcomes[i] = run_rank(body, *worlds[i], *backends_[i]); });
    return outcomes;
  }
  void run_worlds(const std::function<void(World&)>& body) override {
    for_each_world([&](std::size_t i) { body(*worlds[i]); });
  }

 private:
  static void for_each_world(const std::function<void(std::size_t)>& run) {
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < worlds.size(); ++i) threads.emplace_back([&run, i] { run(i); });
    run(0);
  }
  static Status run_rank(const std::function<Status(Rank&)>& body, World& world, Backend& backend) {
    std::unique_ptr<ProcessGroup> group = must(world.create_group(backend));
    Rank rank{group, *group, backend, must(backend.create_stream(StreamRole::collective))};
    Status outcome = run_caught(body, rank);
    const Status drained = backend.synchronize(rank.stream);
    if (outcome.is_ok()) outcome = drained;
    if (!outcome.is_ok()) rank.leave();
    return outcome;
  }
  // An exception would end the test on this rank alone, and it would be in another test than the others from
  // then on.
  static Status run_caught(const std::function<Status(Rank&)>& body, Rank& rank) {
    try {
      return body(rank);
    } catch (const Error& error) {
      return error.status();
    }
  }

  std::unique_ptr<ThreadPool> pool_;
  SteadyClock clock_;
  std::vector<std::unique_ptr<Backend>> backends_;
};

}  // namespace

std::vector<int> rank_counts() { return {worlds.front()->size()}; }
std::unique_ptr<Ranks> make_ranks(int, StreamSchedule schedule) {
  return std::make_unique<RankProcess>(schedule);
}

// Not with the others: one rank prints, all print what fails.
void keep_output_of_first_rank() {
  if (worlds.front()->rank() == 0) return;
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  struct OnlyFailures final : ::testing::EmptyTestEventListener {
    void OnTestPartResult(const ::testing::TestPartResult& result) override {
      if (result.failed())
        std::fprintf(stderr, "%s: %s:%d: %s\n", worlds.front()->description().c_str(), result.file_name(),
                     result.line_number(), result.message());
    }
  };
  delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new OnlyFailures);
}

}  // namespace strata::test

int main(int argc, char** argv) {
  using namespace strata;
  const int ranks_here = std::atoi(argv[argc - 1]);  // 0: the last argument is no number
  test::worlds = must(open_mpi_worlds(std::max(ranks_here, 1)));
  ::testing::InitGoogleTest(&argc, argv);
  test::keep_output_of_first_rank();
  const int failed = RUN_ALL_TESTS();
  test::make_ranks(0, StreamSchedule::threads)->run_worlds([](World& world) { (void)world.all_gather(""); });
  {  // ranks wait for each other's end
    std::vector<std::jthread> ending;
    for (auto& world : test::worlds) ending.emplace_back([&world] { world.reset(); });
  }
  return failed;
}
