// The heap refuses the n-th allocation of the thread that drives an engine, for every n in turn. A program of
// its own, since failing_heap.cpp replaces operator new.
#include <gtest/gtest.h>

#include "engine/failing_heap.h"
#include "engine/tiny_run.h"

namespace strata {
namespace {

using test::CountingBatches;
using test::tiny_programs;

// What a run does from its plan to its third step; the digest of its states.
std::string whole_run(const std::string& dir, ThreadPool& pool) {
  SteadyClock clock;
  EngineOptions options;
  options.chunk_elems = 8192;
  options.policy = PlacementPolicy::nvme;
  options.nvme.dirs = {dir};
  options.nvme.engine = IoEngine::threads;
  const auto plan = must(Engine::plan(tiny_programs(), options));
  const auto backend = must(create_host_backend({}, pool, clock));
  const auto engine = must(Engine::create(*plan, {*backend, pool, clock, posix_io()}));
  must(engine->initialize(3));
  CountingBatches batches(test::tiny_config().vocab);
  for (int step = 0; step < 3; ++step) {
    StepReport report;
    must(engine->train_step(batches, 1e-2, report));
  }
  return must(engine->state_digest());
}

// It ends with bad_alloc or with a Status, and takes all it had with it: budgets, backends and managers abort
// where something is still held, and AddressSanitizer sees what was leaked.
TEST(HeapFaultTest, AnAllocationRefusedAnywhereEndsARunInGoodOrder) {
  const test::TempDir dir;
  const auto pool = must(ThreadPool::create(1));
  const std::string want = whole_run(dir.path(), *pool);  // what libraries keep is there now
  const std::uint64_t before = test::heap_allocations;
  EXPECT_EQ(whole_run(dir.path(), *pool), want);
  const std::uint64_t total = test::heap_allocations - before;
  EXPECT_GT(total, 1000u);
  int refused = 0;
  for (std::uint64_t nth = 1; nth <= total; nth += 1 + nth / 40) {
    test::heap_fails_at = test::heap_allocations + nth;
    bool ended_well = false;
    try {
      ended_well = whole_run(dir.path(), *pool) == want;
    } catch (const std::bad_alloc&) {
      ++refused;
    } catch (const Error&) {
      ++refused;
    }
    test::heap_fails_at = 0;
    EXPECT_TRUE(refused > 0 || ended_well);
  }
  EXPECT_GT(refused, 50);
  EXPECT_EQ(whole_run(dir.path(), *pool), want);
}

}  // namespace
}  // namespace strata
