// The heap refuses the n-th allocation of the thread that drives an engine, for every n in turn. A program of
// its own, since it replaces operator new.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "engine/tiny_run.h"

namespace {

thread_local std::uint64_t allocations = 0;
thread_local std::uint64_t refused_one = 0;  // 0: none

void* allocate(std::size_t bytes, std::size_t alignment) {
  if (++allocations == refused_one) throw std::bad_alloc();
  void* const p = alignment <= alignof(std::max_align_t)
                      ? std::malloc(bytes == 0 ? 1 : bytes)
                      : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes, 1); }
void* operator new[](std::size_t bytes) { return allocate(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t a) {
  return allocate(bytes, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t bytes, std::align_val_t a) {
  return allocate(bytes, static_cast<std::size_t>(a));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

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
  const std::uint64_t before = allocations;
  EXPECT_EQ(whole_run(dir.path(), *pool), want);
  const std::uint64_t total = allocations - before;
  EXPECT_GT(total, 1000u);
  int refused = 0;
  for (std::uint64_t nth = 1; nth <= total; nth += 1 + nth / 40) {
    refused_one = allocations + nth;
    bool ended_well = false;
    try {
      ended_well = whole_run(dir.path(), *pool) == want;
    } catch (const std::bad_alloc&) {
      ++refused;
    } catch (const Error&) {
      ++refused;
    }
    refused_one = 0;
    EXPECT_TRUE(refused > 0 || ended_well);
  }
  EXPECT_GT(refused, 50);
  EXPECT_EQ(whole_run(dir.path(), *pool), want);
}

}  // namespace
}  // namespace strata
