// The contract's tests with processes as ranks: mpirun starts this program once for each rank, and every
// process runs all tests in the same order.
#include <cstdio>
#include <cstring>

#include <strata/parallel/mpi_world.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/threads/thread_pool.h>

#include "parallel/ranks.h"

namespace strata::test {
namespace {

std::unique_ptr<World> world;  // of the whole program: MPI starts once

class RankProcess final : public Ranks {
 public:
  explicit RankProcess(StreamSchedule schedule)
      : pool_(must(ThreadPool::create(1))),
        backend_(must(create_host_backend(
            {.schedule = schedule, .check = schedule == StreamSchedule::latest_legal}, *pool_, clock_))) {}

  std::vector<Status> run(const std::function<Status(Rank&)>& body) override {
    std::unique_ptr<ProcessGroup> group = must(world->create_group(*backend_));
    Rank rank{group, *group, *backend_, must(backend_->create_stream(StreamRole::collective))};
    Status outcome = run_caught(body, rank);
    const Status drained = backend_->synchronize(rank.stream);
    if (outcome.is_ok()) outcome = drained;
    if (!outcome.is_ok()) rank.leave();
    return {outcome};
  }
  void run_worlds(const std::function<void(World&)>& body) override { body(*world); }

 private:
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
  std::unique_ptr<Backend> backend_;
};

}  // namespace

std::vector<int> rank_counts() { return {world->size()}; }
std::unique_ptr<Ranks> make_ranks(int, StreamSchedule schedule) {
  return std::make_unique<RankProcess>(schedule);
}

// Not with the others: one rank prints, all print what fails.
void keep_output_of_first_rank() {
  if (world->rank() == 0) return;
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  struct OnlyFailures final : ::testing::EmptyTestEventListener {
    void OnTestPartResult(const ::testing::TestPartResult& result) override {
      if (result.failed())
        std::fprintf(stderr, "%s: %s:%d: %s\n", world->description().c_str(), result.file_name(),
                     result.line_number(), result.message());
    }
  };
  delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new OnlyFailures);
}

}  // namespace strata::test

int main(int argc, char** argv) {
  using namespace strata;
  test::world = must(open_mpi_world());
  ::testing::InitGoogleTest(&argc, argv);
  test::keep_output_of_first_rank();
  const int failed = RUN_ALL_TESTS();
  (void)test::world->all_gather("");
  test::world.reset();
  return failed;
}
