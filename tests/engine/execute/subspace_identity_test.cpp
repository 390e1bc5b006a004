// Training in subspaces gives the same bits in every step mode, placement and schedule of micro-batches, and
// after failures of the slow tier.
#include <bit>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/session/checkpoint.h>

#include "engine/execute/frozen_runs.h"
#include "engine/execute/subspace_runs.h"
#include "support/fault_io.h"

namespace strata {
namespace {

using test::Fault;
using test::FaultIo;
using test::FaultKind;
using test::IoCall;
using test::TinyRun;
using test::frozen::Tiers;
using test::subspace::groups_of;
using test::subspace::Kind;
using test::subspace::options_of;
using test::subspace::programs_of;
using testing::HasSubstr;

/// Losses, norms, energies, evaluations and states of a run that finds new bases before every other step.
struct SubspaceRecord {
  std::vector<std::uint64_t> bits;
  std::vector<std::string> digests;
  friend bool operator==(const SubspaceRecord&, const SubspaceRecord&) = default;
};
SubspaceRecord record_subspace_run(TinyRun& run, const std::vector<LoraGroup>& groups) {
  must(run.engine->initialize(5));
  test::CountingBatches batches(test::tiny_config().vocab);
  SubspaceRecord record;
  for (int step = 0; step < 5; ++step) {
    if (step % 2 == 0) {
      for (const Engine::RenewedBasis& basis : must(run.engine->renew_bases(batches, groups)))
        for (const float energy : basis.energy) record.bits.push_back(std::bit_cast<std::uint32_t>(energy));
      if (step == 2) record.digests.push_back(must(run.engine->state_digest()));
    }
    StepReport report;
    must(run.engine->train_step(batches, 1e-2, report));
    record.bits.push_back(std::bit_cast<std::uint32_t>(report.loss));
    record.bits.push_back(std::bit_cast<std::uint64_t>(report.grad_norm));
    if (step == 3)
      record.bits.push_back(std::bit_cast<std::uint64_t>(must(run.engine->evaluate(batches, 1))));
  }
  record.digests.push_back(must(run.engine->state_digest()));
  EXPECT_EQ(run.engine->peak_bytes(), run.plan->planned_peak);
  return record;
}

struct HowToRun {
  StepMode mode = StepMode::serial;
  Tiers tiers = Tiers::device;
  int threads = 2;
};
SubspaceRecord subspace_run(const DecoderConfig& config, const Kind& kind, SessionOptions options,
                            const HowToRun& how) {
  const test::TempDir dir;
  options.step_mode = how.mode;
  options.undo_bytes = kUnlimited;
  options.chunk_elems = 2 * ChunkLayout::kSliceAlign;
  options.nvme.dirs = {dir.path()};
  options.nvme.engine = IoEngine::threads;
  const auto choose = [&](const ChunkLayout& layout, Placement& placement) {
    test::frozen::assign_homes(how.tiers, layout, placement);
  };
  const bool checked = (static_cast<int>(how.mode) + static_cast<int>(how.tiers)) % 2 == 0;
  TinyRun run(must(Engine::plan_with(programs_of(config, kind), options, choose)), how.threads,
              checked ? HostBackendOptions{.schedule = StreamSchedule::latest_legal, .check = true}
                      : HostBackendOptions{});
  return record_subspace_run(run, groups_of(config));
}

struct SubspaceCase {
  const char* name;
  const char* family;
  Kind kind;
  double clip = 1e-2;
};

class SubspaceIdentityTest : public ::testing::TestWithParam<SubspaceCase> {};

TEST_P(SubspaceIdentityTest, EveryModeAndPlacementGivesTheBitsOfTheSerialStepOnTheDevice) {
  const SubspaceCase& c = GetParam();
  const DecoderConfig config = test::tiny_of_family(c.family);
  const SessionOptions options = options_of(c.kind.micro_batches, c.clip);
  const SubspaceRecord want = subspace_run(config, c.kind, options, {});
  for (const StepMode mode : kStepModes)
    for (const Tiers tiers : test::frozen::kTiersTried)
      EXPECT_EQ(subspace_run(config, c.kind, options, {mode, tiers}), want)
          << to_string(mode) << ", tiers " << static_cast<int>(tiers);
  EXPECT_EQ(subspace_run(config, c.kind, options, {.threads = 1}), want) << "one thread";
}

INSTANTIATE_TEST_SUITE_P(
    Cases, SubspaceIdentityTest,
    ::testing::Values(SubspaceCase{"gpt2_f32", "gpt2", {}},
                      SubspaceCase{"llama_bf16",
                                   "llama",
                                   {.recompute = Recompute::full,
                                    .compute = DType::bf16,
                                    .micro_batches = 3,
                                    .method = kernels::SvdMethod::subspace}},
                      SubspaceCase{
                          "qwen2_bf16_unclipped",
                          "qwen2",
                          {.compute = DType::bf16, .clips = false, .micro_batches = 2, .of_train = 1},
                          0}),
    [](const auto& test) { return std::string(test.param.name); });

// Without clipping the training program may cover one micro-batch or all of them.
TEST(SubspaceAccumulationTest, InterleavedMicroBatchesGiveTheBitsOfSeparatePasses) {
  const DecoderConfig config = test::tiny_of_family("llama");
  const SessionOptions options = options_of(3, 0);
  Kind kind{.compute = DType::bf16, .clips = false, .micro_batches = 3};
  const SubspaceRecord together = subspace_run(config, kind, options, {});
  kind.of_train = 1;
  EXPECT_EQ(subspace_run(config, kind, options, {}), together);
}

/// A run all of whose states live on nvme, so that every call reads and writes it.
struct FaultySubspaceRun {
  explicit FaultySubspaceRun(const std::string& dir, StepMode mode = StepMode::serial)
      : run(plan(dir, mode), 1, {.schedule = StreamSchedule::latest_legal, .check = true}, io) {
    must(run.engine->initialize(3));
    must(renew());
    run.train(2);
    must(run.engine->state_digest());  // an update that is pending would be part of the next call
  }
  static std::unique_ptr<const RunPlan> plan(const std::string& dir, StepMode mode) {
    SessionOptions options = test::swapping_options(dir, mode);
    options.grad_accum = 1;
    options.groups = options_of().groups;
    return must(Engine::plan_with(programs_of(test::tiny_of_family("gpt2"), {.compute = DType::bf16}),
                                  options, [](const ChunkLayout& layout, Placement& placement) {
                                    test::frozen::assign_homes(Tiers::nvme, layout, placement);
                                  }));
  }
  Status renew() {
    test::CountingBatches batches(test::tiny_config().vocab);
    return run.engine->renew_bases(batches, groups_of(test::tiny_of_family("gpt2"))).status();
  }
  FaultIo io{posix_io(), 5};
  TinyRun run;
};

// Wherever in the renewal of bases the swap begins to fail: the states are those before it, those between
// its parts, from which it is repeated with the same bits, or refused until they are set again.
void sweep_reads_of_renewal(StepMode mode) {
  const test::TempDir dir;
  FaultySubspaceRun straight(dir.path(), mode);
  const std::string saved =
      must(save_checkpoint(*straight.run.engine, posix_io(), dir.file("checkpoints"), {}, 0));
  const std::string before = must(straight.run.engine->state_digest());
  must(straight.renew());
  const std::string after = must(straight.run.engine->state_digest());
  FaultySubspaceRun faulty(dir.path(), mode);
  Engine& engine = *faulty.run.engine;
  int failures = 0, refused = 0, repeated = 0;
  for (std::uint64_t nth = 1;; nth += nth < 12 ? 1 : 7) {
    must(load_checkpoint(engine, posix_io(), saved));
    ASSERT_EQ(must(engine.state_digest()), before);
    faulty.io.add({IoCall::read, FaultKind::fail, faulty.io.calls(IoCall::read) + nth, true});
    const Status status = faulty.renew();
    faulty.io.clear();
    const Result<std::string> found = engine.state_digest();
    if (status.is_ok()) {
      ASSERT_TRUE(found.has_value());
      EXPECT_EQ(*found, after);
      break;
    }
    ++failures;
    EXPECT_EQ(status.code(), Code::io_error) << status.to_string();
    if (!found.has_value()) {
      ++refused;
      EXPECT_EQ(found.status(), status) << "call " << nth;
      EXPECT_THAT(std::string(status.message()), HasSubstr("load a checkpoint"));
      StepReport report;
      test::CountingBatches batches(test::tiny_config().vocab);
      EXPECT_EQ(engine.train_step(batches, 1e-2, report), status);
      EXPECT_EQ(faulty.renew(), status);
      continue;
    }
    ++repeated;
    must(faulty.renew());
    EXPECT_EQ(must(engine.state_digest()), after) << "call " << nth;
  }
  EXPECT_GT(failures, 10);
  EXPECT_GT(refused, 0);
  EXPECT_GT(repeated, 0);
}
TEST(SubspaceFaultTest, ReadsMayBeginToFailAnywhere) {
  for (const StepMode mode : {StepMode::serial, StepMode::speculative}) sweep_reads_of_renewal(mode);
}

TEST(SubspaceFaultTest, WritesMayBeginToFailAnywhere) {
  const test::TempDir dir;
  int failures = 0;
  for (std::uint64_t nth = 1; nth < 40; nth += 3) {
    FaultySubspaceRun faulty(dir.path());
    const std::string before = must(faulty.run.engine->state_digest());
    const std::string saved =
        must(save_checkpoint(*faulty.run.engine, posix_io(), dir.file("checkpoints"), {}, 0));
    faulty.io.add({IoCall::write, FaultKind::fail, faulty.io.calls(IoCall::write) + nth, true});
    const Status status = faulty.renew();
    failures += status.is_ok() ? 0 : 1;
    faulty.io.clear();
    must(load_checkpoint(*faulty.run.engine, posix_io(), saved));
    EXPECT_EQ(must(faulty.run.engine->state_digest()), before) << "call " << nth;
    must(faulty.renew());
    faulty.run.train(1);
  }
  EXPECT_GT(failures, 3);
}

}  // namespace
}  // namespace strata
