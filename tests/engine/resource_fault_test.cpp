// Failures of memory, streams and queues, at every call in turn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <malloc.h>

#include <strata/session/checkpoint.h>

#include "engine/tiny_run.h"
#include "support/fault_backend.h"
#include "support/fault_io.h"

namespace strata {
namespace {

using test::CountingBatches;
using test::FaultBackend;
using test::FaultIo;
using test::FaultKind;
using test::IoCall;
using test::tiny_programs;
using testing::AnyOf;
using testing::HasSubstr;

// Payloads alternate between nvme and RAM by chunk.
std::unique_ptr<const RunPlan> three_tier_plan(const std::string& dir, StepMode mode) {
  const SessionOptions options = test::swapping_options(dir, mode);
  return must(
      Engine::plan_with(tiny_programs(), options, [](const ChunkLayout& layout, Placement& placement) {
        for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk)
          for (const Payload payload : {Payload::param, Payload::m, Payload::v, Payload::accum})
            placement.homes[chunk][static_cast<std::size_t>(payload)] = payload == Payload::accum
                                                                            ? Tier::pinned
                                                                        : chunk % 2 == 0 ? Tier::nvme
                                                                                         : Tier::pinned;
      }));
}

// An engine over a backend and an Io in which calls can be made to fail.
struct FragileRun {
  explicit FragileRun(const RunPlan& run_plan)
      : plan(run_plan),
        pool(must(ThreadPool::create(1))),
        base(must(
            create_host_backend({.schedule = StreamSchedule::latest_legal, .check = true}, *pool, clock))),
        backend(*base) {}
  Status create() {
    STRATA_TRY_ASSIGN(engine, Engine::create(plan, {backend, *pool, clock, io}));
    return engine->initialize(3);
  }
  Status step() {
    StepReport report;
    return engine->train_step(batches, 1e-2, report);
  }
  std::string digest() { return must(engine->state_digest()); }

  const RunPlan& plan;
  SteadyClock clock;
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Backend> base;
  FaultBackend backend;
  FaultIo io{posix_io(), 5};
  CountingBatches batches{test::tiny_config().vocab};
  std::unique_ptr<Engine> engine;
};

// Budgets and the backend abort at the end of an iteration if anything was not released.
TEST(ResourceFaultTest, AnyFailureAtTheStartIsReportedAndReleasesEverything) {
  const test::TempDir dir;
  const auto plan = three_tier_plan(dir.path(), StepMode::serial);
  for (const bool sticky : {false, true})
    for (std::uint64_t nth = 1;; nth += nth < 20 ? 1 : 7) {
      FragileRun run(*plan);
      run.backend.fail(nth, sticky);
      const Status status = run.create();
      if (status.is_ok()) {
        EXPECT_GT(nth, 20u);
        break;
      }
      EXPECT_EQ(status.code(), Code::out_of_memory) << status.to_string();
      EXPECT_THAT(std::string(status.message()), HasSubstr("injected failure of call")) << nth;
      if (run.engine == nullptr) continue;
      run.backend.clear();
      if (!run.engine->initialize(3).is_ok()) {  // the end of a pin could not be recorded, which is permanent
        EXPECT_THAT(std::string(status.message()), HasSubstr(", record"));
        continue;
      }
      must(run.step());  // setting states anew ends the broken state
    }
}

class AbortedStepTest : public testing::TestWithParam<StepMode> {};

// A step that fails at any call leaves the states from before it, or those after it if only the update failed
// and stays pending, or reports that they are in between. Everything that it held is available for the next
// step.
TEST_P(AbortedStepTest, AFailureAtAnyCallKeepsTheStatesOrRefusesThem) {
  const test::TempDir dir;
  const auto plan = three_tier_plan(dir.path(), GetParam());
  const auto begun = [&] {
    auto run = std::make_unique<FragileRun>(*plan);
    must(run->create());
    must(run->step());
    return run;
  };
  const auto straight = begun();
  const std::string before = straight->digest();
  must(straight->step());
  const std::string after = straight->digest();
  std::uint64_t refused = 0, kept = 0;
  for (std::uint64_t nth = 1;; nth += 17) {
    const auto run = begun();
    run->backend.fail(nth, false);
    const Status status = run->step();
    run->backend.clear();
    if (status.is_ok()) {
      EXPECT_GT(nth, 200u);
      break;
    }
    EXPECT_EQ(status.code(), Code::out_of_memory) << status.to_string();
    const Result<std::string> left = run->engine->state_digest();
    if (!left.has_value()) {
      // The states are between two steps, or the end of a pin could not be recorded, which is permanent.
      EXPECT_THAT(std::string(left.status().message()),
                  AnyOf(HasSubstr("load a checkpoint"), HasSubstr(", record")))
          << "call " << nth;
      EXPECT_FALSE(run->step().is_ok());
      ++refused;
      continue;
    }
    ++kept;
    ASSERT_EQ(*left, before) << "call " << nth;
    must(run->step());
    ASSERT_EQ(run->digest(), after) << "call " << nth;
  }
  EXPECT_GT(kept, 10u);
  EXPECT_GT(refused, 0u);
}

INSTANTIATE_TEST_SUITE_P(Modes, AbortedStepTest,
                         testing::Values(StepMode::serial, StepMode::two_phase, StepMode::speculative),
                         [](const auto& mode) { return std::string(to_string(mode.param)); });

// The data may end at either micro-batch.
TEST_P(AbortedStepTest, AFailingBatchSourceLeavesTheStates) {
  const test::TempDir dir;
  const auto plan = three_tier_plan(dir.path(), GetParam());
  FragileRun straight(*plan), faulty(*plan);
  for (FragileRun* run : {&straight, &faulty}) {
    must(run->create());
    must(run->step());
  }
  class Ends final : public BatchSource {
   public:
    explicit Ends(std::int64_t after) : after_(after) {}
    Status fill(std::int64_t index, const BatchView& batch) override {
      if (index % 2 == after_) return Status::error(Code::io_error, "no more data");
      return inner_.fill(index, batch);
    }
    std::int64_t n_counted(std::int64_t index, std::int64_t n) override { return inner_.n_counted(index, n); }

   private:
    const std::int64_t after_;
    CountingBatches inner_{test::tiny_config().vocab};
  };
  for (const std::int64_t micro_batch : {0, 1}) {
    Ends ends(micro_batch);
    StepReport report;
    EXPECT_EQ(faulty.engine->train_step(ends, 1e-2, report).code(), Code::io_error);
    EXPECT_EQ(faulty.digest(), straight.digest()) << "micro-batch " << micro_batch;
  }
  for (FragileRun* run : {&straight, &faulty}) must(run->step());
  EXPECT_EQ(faulty.digest(), straight.digest());
}

// The model's sizes are odd, so alignment must follow from the chunks alone.
TEST(SwapAlignmentTest, StrictDevicesOfAnyAlignmentGiveTheSameBits) {
  const test::TempDir dir;
  const auto plan = three_tier_plan(dir.path(), StepMode::serial);
  std::string want;
  for (const std::uint32_t alignment : {0u, 512u, 4096u, 16384u}) {
    FragileRun run(*plan);
    if (alignment != 0) run.io.enforce_alignment(alignment);
    must(run.create());
    for (int step = 0; step < 2; ++step) must(run.step());
    if (want.empty()) want = run.digest();
    EXPECT_EQ(run.digest(), want) << alignment;
  }
}

// The disk fills up during the updates; loading an earlier checkpoint restores the run bit for bit.
TEST(SwapFullTest, ACheckpointRestoresARunInterruptedByAFullDisk) {
  const test::TempDir dir;
  const auto plan = three_tier_plan(dir.path(), StepMode::serial);
  FragileRun straight(*plan), faulty(*plan);
  for (FragileRun* run : {&straight, &faulty}) {
    must(run->create());
    must(run->step());
  }
  const std::string saved = must(save_checkpoint(*faulty.engine, posix_io(), dir.file("checkpoints"), {}, 0));
  faulty.io.add({IoCall::write, FaultKind::fail, faulty.io.calls(IoCall::write) + 2, true, Code::no_space});
  const Status status = faulty.step();
  EXPECT_EQ(status.code(), Code::no_space) << status.to_string();
  EXPECT_THAT(std::string(status.message()), HasSubstr("chunk "));
  faulty.io.clear();
  must(load_checkpoint(*faulty.engine, posix_io(), saved));
  for (FragileRun* run : {&straight, &faulty}) must(run->step());
  EXPECT_EQ(faulty.digest(), straight.digest());
}

std::size_t open_files() { return must(posix_io().list("/proc/self/fd")).size(); }

// A warm run must not hold more bytes or descriptors after hundreds of steps and digests.
TEST(LeakTest, AWarmRunHoldsNoMoreAfterHundredsOfSteps) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's allocator keeps what is freed";
#endif
  const test::TempDir dir;
  const auto plan = three_tier_plan(dir.path(), StepMode::two_phase);
  FragileRun run(*plan);
  must(run.create());
  const auto steps = [&](int n) {
    for (int i = 0; i < n; ++i) {
      must(run.step());
      if (i % 50 == 0) run.digest();
    }
  };
  steps(300);  // at first, queues of free slots grow by a block or two per class
  const std::size_t files = open_files(), bytes = ::mallinfo2().uordblks;
  const BackendCounters made = run.base->counters();
  steps(400);
  EXPECT_EQ(open_files(), files);
  EXPECT_LE(::mallinfo2().uordblks, bytes + 4096);
  EXPECT_EQ(run.base->counters().buffers_created, made.buffers_created);
  EXPECT_EQ(run.base->counters().events_created, made.events_created);
}

}  // namespace
}  // namespace strata
