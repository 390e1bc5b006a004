// Lets the n-th allocation of the thread that drives an engine fail, for every n in turn.
#include <gtest/gtest.h>

#include <strata/runtime/memory/alloc_counter.h>

#include "engine/tiny_run.h"

namespace strata {
namespace {

using test::CountingBatches;
using test::tiny_programs;

// Does everything from planning to the third step, and returns the digest of the states.
std::string whole_run(const std::string& dir, ThreadPool& pool) {
  SteadyClock clock;
  SessionOptions options;
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

// The run ends with bad_alloc or with a Status and releases everything: budgets, backends and managers abort
// if something is still held, and AddressSanitizer finds leaks.
TEST(HeapFaultTest, AnAllocationFailureAnywhereEndsARunCleanly) {
  const test::TempDir dir;
  const auto pool = must(ThreadPool::create(1));
  const std::string want = whole_run(dir.path(), *pool);  // also makes libraries allocate what they keep
  const std::uint64_t before = AllocCounter::thread_count();
  EXPECT_EQ(whole_run(dir.path(), *pool), want);
  const std::uint64_t total = AllocCounter::thread_count() - before;
  EXPECT_GT(total, 1000u);
  int refused = 0;
  for (std::uint64_t nth = 1; nth <= total; nth += 1 + nth / 40) {
    AllocCounter::fail_at(AllocCounter::thread_count() + nth);
    bool ended_well = false;
    try {
      ended_well = whole_run(dir.path(), *pool) == want;
    } catch (const std::bad_alloc&) {
      ++refused;
    } catch (const Error&) {
      ++refused;
    }
    AllocCounter::fail_at(0);
    EXPECT_TRUE(refused > 0 || ended_well);
  }
  EXPECT_GT(refused, 50);
  EXPECT_EQ(whole_run(dir.path(), *pool), want);
}

}  // namespace
}  // namespace strata
