// Any number of ranks, under every technique of data parallelism, computes the bits of one device.
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <map>
#include <ostream>
#include <tuple>

#include <gtest/gtest.h>

#include <strata/runtime/str.h>
#include <strata/session/ranks/rank_traffic.h>

#include "engine/rank_run.h"
#include "engine/tiny_run.h"
#include "support/temp_dir.h"

namespace strata {
namespace {

using test::CountingBatches;
using test::RankOutcome;
using test::RankRun;

constexpr std::int32_t kGradAccum = 24;

// bench/claims/rank_parity compares more steps of more runs.
const char* parity_steps() { return std::getenv("RANK_PARITY_STEPS"); }
int steps_compared() { return parity_steps() == nullptr ? 4 : std::atoi(parity_steps()); }
bool compares_all() { return parity_steps() != nullptr; }

/// How the states are divided. HSDP: in shards of half of the ranks.
struct Technique {
  const char* name;
  std::int32_t zero = 0;
  bool hybrid = false;
};
constexpr Technique kDdp{"DDP", 0}, kZero1{"ZeRO-1", 1}, kZero2{"ZeRO-2", 2}, kZero3{"ZeRO-3", 3},
    kHsdp{"HSDP", 3, true};

enum class RankTiers : std::uint8_t { device, ram, three };
constexpr std::array kTierNames = {"device", "ram", "three tiers"};
enum class Clipping : std::uint8_t { never, sometimes, always };
constexpr std::array kClippingNames = {"never", "sometimes", "always"};

struct RankCase {
  std::int32_t ranks = 1;
  Technique technique = kDdp;
  StepMode mode = StepMode::two_phase;
  RankTiers tiers = RankTiers::ram;
  DType compute = DType::f32;
  Clipping clipping = Clipping::sometimes;
  GradientReduce reduce = GradientReduce::each;
  cpuopt::Optimizer optimizer = cpuopt::Optimizer::adamw;
  StateFormat states = StateFormat::fp32;
  double lr = 1e-2;
  double ema_decay = 0;
};

std::string describe(const RankCase& c) {
  return str(c.ranks, " ranks, ", c.technique.name, ", ", to_string(c.mode), ", ",
             kTierNames[static_cast<std::size_t>(c.tiers)], ", ", to_string(c.compute), ", clips ",
             kClippingNames[static_cast<std::size_t>(c.clipping)]);
}
void PrintTo(const RankCase& c, std::ostream* out) { *out << describe(c); }

// The gradient norms of this model and data are from 0.6 to 4; half of the steps exceed 1.2. After fifty
// steps they are below 0.01.
double clip_of(Clipping clipping) {
  constexpr std::array kClip = {0.0, 1.2, 1e-4};
  return kClip[static_cast<std::size_t>(clipping)];
}

// Homes for every payload that needs one, so that chunks of all kinds occur.
void assign_homes(const RankCase& c, const ChunkLayout& layout, Placement& placement) {
  for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk)
    for (const Payload payload : {Payload::param, Payload::master, Payload::m, Payload::v, Payload::ema,
                                  Payload::accum, Payload::gathered}) {
      if (!layout.has(chunk, payload) || (payload == Payload::gathered && c.technique.zero == 3)) continue;
      Tier home = c.tiers == RankTiers::device ? Tier::device : Tier::pinned;
      if (c.tiers == RankTiers::three)
        home = chunk % 4 == 0                                     ? Tier::device
               : (chunk + static_cast<ChunkId>(payload)) % 2 == 0 ? Tier::pinned
                                                                  : Tier::nvme;
      if (c.mode == StepMode::hybrid && chunk < layout.n_chunks() / 3) home = Tier::device;
      placement.homes[chunk][static_cast<std::size_t>(payload)] = home;
    }
}

SessionOptions options_of(const RankCase& c, std::int32_t rank, const std::string& dir) {
  SessionOptions options;
  options.step_mode = c.mode;
  options.grad_accum = kGradAccum;
  options.clip = clip_of(c.clipping);
  options.loss_scale = 1 << 20;  // overflows in f16
  options.optimizer.optimizer = c.optimizer;
  options.states = c.states;
  options.optimizer.ema_decay = c.ema_decay;
  options.chunk_elems = 4096 * c.ranks;
  options.prefetch = 2;
  options.undo_bytes = 3000000;
  options.nvme.dirs = {dir};
  options.nvme.engine = IoEngine::threads;
  options.nvme.io_threads = 1;
  options.ranks = {.ranks = c.ranks, .rank = rank, .zero = c.technique.zero, .reduce = c.reduce};
  if (c.technique.hybrid) options.ranks.shard_ranks = c.ranks / 2;
  return options;
}

Status train_rank(Engine& engine, RankOutcome& outcome, int steps, double lr = 1e-2) {
  STRATA_TRY(engine.initialize(3));
  CountingBatches batches(test::rank_model().vocab);
  for (int step = 0; step < steps; ++step) {
    StepReport report;
    STRATA_TRY(engine.train_step(batches, lr, report));
    outcome.bits.push_back(std::bit_cast<std::uint32_t>(report.loss));
    outcome.bits.push_back(std::bit_cast<std::uint64_t>(report.grad_norm));
    outcome.losses.push_back(report.loss);
    outcome.clipped += report.clip_factor < 1 ? 1 : 0;
    outcome.overflow_retries += report.overflow_retries;
    outcome.speculated += report.speculated;
    outcome.rolled_back += report.rolled_back;
    if (step != 1) continue;
    STRATA_TRY_ASSIGN(const double loss, engine.evaluate(batches, 7));
    outcome.evaluated.push_back(static_cast<float>(loss));
  }
  return test::collect_states(engine, outcome);
}

Result<std::unique_ptr<const RunPlan>> plan(const RankCase& c, std::int32_t rank, const std::string& dir) {
  const ProgramSet programs = test::tiny_programs(Recompute::none, 1, test::rank_model(), c.compute);
  return Engine::plan_with(
      programs, options_of(c, rank, dir),
      [&](const ChunkLayout& layout, Placement& placement) { assign_homes(c, layout, placement); });
}

RankOutcome train(const RankCase& c, int steps = steps_compared()) {
  const test::TempDir dir;
  const RankRun run{.plan = [&](std::int32_t rank) { return plan(c, rank, dir.path()); }, .ranks = c.ranks};
  return run.run(
      [&](Engine& engine, RankOutcome& outcome) { return train_rank(engine, outcome, steps, c.lr); });
}

/// The same run on one device, which does not depend on the placement, the step mode or the technique.
const RankOutcome& on_one_device(const RankCase& c) {
  static std::map<std::tuple<DType, Clipping, cpuopt::Optimizer, StateFormat, double, double>, RankOutcome>
      known;
  const auto [at, is_new] =
      known.try_emplace({c.compute, c.clipping, c.optimizer, c.states, c.lr, c.ema_decay});
  if (is_new)
    at->second = train({.compute = c.compute,
                        .clipping = c.clipping,
                        .optimizer = c.optimizer,
                        .states = c.states,
                        .lr = c.lr,
                        .ema_decay = c.ema_decay});
  return at->second;
}

// In whole elements: k (N-1)/N n e_g and so on, over the padded sizes of the chunks, in f32.
void expect_formula(const RunPlan& plan, const RankTraffic& traffic) {
  const DataParallel& ranks = plan.options.ranks;
  std::int64_t n = 0;
  for (const ChunkInfo& chunk : plan.layout.chunks()) n += chunk.n_elems;
  const std::int64_t k = kGradAccum / ranks.ranks, others = ranks.ranks - 1, s = ranks.shards();
  const std::int64_t rounds = ranks.reduce == GradientReduce::each ? k : 1;
  EXPECT_EQ(static_cast<std::int64_t>(traffic.gradients),
            4 * n / ranks.ranks * (rounds * others + ranks.ranks / s - 1));
  const std::int64_t once = 4 * n / s * (s - 1);
  if (ranks.zero < 3 || s == 1) {
    EXPECT_EQ(static_cast<std::int64_t>(traffic.parameters), once);  // 0 for DDP
  } else {  // for forward and for backward, except where they meet; a tied table is used at both ends of each
    EXPECT_LT(static_cast<std::int64_t>(traffic.parameters), 3 * k * once);
    EXPECT_GT(static_cast<std::int64_t>(traffic.parameters), k * once);
  }
}

class RanksTest : public ::testing::TestWithParam<RankCase> {};

TEST_P(RanksTest, ComputeTheBitsOfOneDevice) {
  const RankCase& c = GetParam();
  const RankOutcome &want = on_one_device(c), got = train(c);
  ASSERT_TRUE(want.status.is_ok()) << want.status.to_string();
  ASSERT_TRUE(got.status.is_ok()) << got.status.to_string();
  expect_same_bits(got, want, describe(c));
  EXPECT_EQ(got.overflow_retries > 0, c.compute == DType::f16);
  const int steps = steps_compared();
  EXPECT_TRUE(c.clipping == Clipping::never    ? got.clipped == 0
              : c.clipping == Clipping::always ? got.clipped == steps
                                               : got.clipped > 0 && got.clipped < steps)
      << got.clipped << " of " << steps;
  const bool waits =
      c.mode == StepMode::serial || c.mode == StepMode::two_phase || c.tiers == RankTiers::device;
  if (c.mode != StepMode::automatic || waits) {
    EXPECT_EQ(got.speculated > 0, !waits) << got.speculated;
  }
}

// Every pair of step mode, tiers, dtype and clipping, each with another number of ranks and technique.
std::vector<RankCase> rank_cases() {
  struct RankKind {
    std::int32_t ranks;
    Technique technique;
  };
  std::vector<RankKind> kinds;
  for (const std::int32_t ranks : {2, 3, 4, 6, 8})
    for (const Technique& technique : {kDdp, kZero2, kZero3, kHsdp})
      if (!technique.hybrid || ranks % 2 == 0) kinds.push_back({ranks, technique});
  constexpr std::array kModes = {StepMode::automatic, StepMode::serial, StepMode::two_phase,
                                 StepMode::speculative, StepMode::hybrid};
  constexpr std::array kDTypes = {DType::f32, DType::bf16, DType::f16};
  std::vector<RankCase> all;
  for (std::size_t a = 0; a < (compares_all() ? 90 : 45); ++a) {
    const RankKind& kind = kinds[(a * 7 + a / 15) % kinds.size()];
    all.push_back({kind.ranks, kind.technique, kModes[a % 5], static_cast<RankTiers>(a % 3),
                   kDTypes[a / 15 % 3], static_cast<Clipping>((a / 15 + a / 5) % 3), GradientReduce::each,
                   cpuopt::Optimizer::adamw, StateFormat::fp32});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Pairwise, RanksTest, ::testing::ValuesIn(rank_cases()));

// The bytes that a rank sends in a step are those of the formula, which sums over chunks what the technique's
// mathematics says.
TEST(RanksTest, BytesSentAreTheFormula) {
  for (const std::int32_t ranks : {2, 3, 4, 6})
    for (const Technique& technique : {kDdp, kZero1, kZero2, kZero3, kHsdp})
      for (const GradientReduce reduce : {GradientReduce::each, GradientReduce::once}) {
        if ((technique.hybrid && ranks % 2 != 0) || (technique.zero == 1 && reduce == GradientReduce::each))
          continue;
        const RankCase c{
            .ranks = ranks, .technique = technique, .clipping = Clipping::never, .reduce = reduce};
        const test::TempDir dir;
        const RankRun run{.plan = [&](std::int32_t rank) { return plan(c, rank, dir.path()); },
                          .ranks = ranks};
        const RankOutcome outcome = run.run([&](Engine& engine, RankOutcome&) -> Status {
          STRATA_TRY(engine.initialize(3));
          CountingBatches batches(test::rank_model().vocab);
          const RankTraffic want = rank_traffic(engine.plan(), engine.plan().of(ProgramRole::train).uses);
          for (int step = 0; step < 3; ++step) {
            const GroupCounters before = engine.group_counters();
            StepReport report;
            STRATA_TRY(engine.train_step(batches, 1e-2, report));
            EXPECT_EQ(engine.group_counters().sent_bytes - before.sent_bytes, want.all()) << describe(c);
            EXPECT_EQ(engine.group_counters().received_bytes - before.received_bytes, want.all());
          }
          expect_formula(engine.plan(), want);
          return {};
        });
        EXPECT_TRUE(outcome.status.is_ok()) << outcome.status.to_string();
      }
}

// Few ranks or many, in turns, and both where many steps are compared.
std::vector<bool> counts_tried(std::size_t turn) {
  return compares_all() ? std::vector{false, true} : std::vector{turn % 2 == 1};
}

// Every optimizer and format of the moments. LAMB exchanges norms of tensors where ranks share them, in the
// order of its updates.
TEST(RanksTest, EveryOptimizerAndStateFormatHasTheBitsOfOneDevice) {
  constexpr std::array kModes = {StepMode::two_phase, StepMode::serial, StepMode::automatic};
  constexpr std::array kFormats = {StateFormat::fp32, StateFormat::bf16, StateFormat::int8};
  // A Latin square of mode and format gives the tiers, so that every pair of these three occurs.
  std::size_t i = 0;
  for (const cpuopt::Optimizer optimizer : cpuopt::all_optimizers())
    for (const Technique& technique : {kDdp, kZero2, kZero3, kHsdp})
      for (const bool many : counts_tried(i / 4)) {
        const RankCase c{.ranks = technique.hybrid ? (many ? 6 : 4) : (many ? 3 : 2),
                         .technique = technique,
                         .mode = kModes[i % 3],
                         .tiers = static_cast<RankTiers>((i + i / 3) % 3),
                         .compute = (i + i / 2 + i / 8) % 2 == 0 ? DType::f32 : DType::bf16,
                         .optimizer = optimizer,
                         .states = kFormats[i / 3 % 3],
                         .ema_decay = i % 3 == 1 ? 0.9 : 0};
        ++i;
        const RankOutcome &want = on_one_device(c), got = train(c);
        ASSERT_TRUE(want.status.is_ok()) << want.status.to_string();
        ASSERT_TRUE(got.status.is_ok()) << describe(c) << ": " << got.status.to_string();
        expect_same_bits(got, want,
                         str(cpuopt::to_string(optimizer), ", ", to_string(c.states), ", ", describe(c)));
      }
}

TEST(RanksTest, BytesOfLambAreTheFormula) {
  const RankCase c{.ranks = 4, .technique = kHsdp, .optimizer = cpuopt::Optimizer::lamb};
  const test::TempDir dir;
  const RankRun run{.plan = [&](std::int32_t rank) { return plan(c, rank, dir.path()); }, .ranks = 4};
  const RankOutcome outcome = run.run([&](Engine& engine, RankOutcome&) -> Status {
    STRATA_TRY(engine.initialize(3));
    CountingBatches batches(test::rank_model().vocab);
    const std::uint64_t want = rank_traffic(engine.plan(), engine.plan().of(ProgramRole::train).uses).all();
    StepReport report;
    STRATA_TRY(engine.train_step(batches, 1e-2, report));
    STRATA_TRY(
        engine.visit(Payload::param, [](const StatePiece&, std::span<const float>) { return Status(); }));
    EXPECT_EQ(engine.group_counters().sent_bytes, want);
    return {};
  });
  EXPECT_TRUE(outcome.status.is_ok()) << outcome.status.to_string();
}

// How far a rank prefetches must not change the order of what it exchanges.
TEST(RanksTest, LambExchangesInOneOrderWhateverARankPrefetches) {
  const RankCase c{.ranks = 2, .technique = kZero3, .optimizer = cpuopt::Optimizer::lamb};
  const test::TempDir dir;
  const RankRun run{
      .plan =
          [&](std::int32_t rank) {
            SessionOptions options = options_of(c, rank, dir.path());
            options.prefetch = rank == 0 ? 6 : 1;
            return Engine::plan_with(
                test::tiny_programs(Recompute::none, 1, test::rank_model(), c.compute), options,
                [&](const ChunkLayout& layout, Placement& placement) { assign_homes(c, layout, placement); });
          },
      .ranks = 2};
  const RankOutcome got =
      run.run([&](Engine& engine, RankOutcome& outcome) { return train_rank(engine, outcome, 4); });
  ASSERT_TRUE(got.status.is_ok()) << got.status.to_string();
  if (steps_compared() == 4) expect_same_bits(got, on_one_device(c), "prefetch 6 and 1");
}

TEST(RanksTest, LambDoesNotSpeculateWhereRanksShareTensors) {
  const RankCase c{
      .ranks = 2, .technique = kZero3, .mode = StepMode::hybrid, .optimizer = cpuopt::Optimizer::lamb};
  const test::TempDir dir;
  const Status refused = plan(c, 0, dir.path()).status();
  EXPECT_EQ(refused.code(), Code::unsupported);
  EXPECT_NE(refused.message().find("use offload.step_mode=two_phase"), std::string_view::npos);
}

// The distance of all states from those of another run, relative to the norm of those.
double distance(const RankOutcome& got, const RankOutcome& want, const char* payload) {
  double difference = 0, norm = 0;
  for (const auto& [name, values] : want.states.at(payload))
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double b = values[i], d = got.states.at(payload).at(name)[i] - b;
      difference += d * d;
      norm += b * b;
    }
  return std::sqrt(difference / norm);
}

// A local sum before a single reduction rounds otherwise, so it is close, not equal. At a learning rate at
// which fifty steps learn these few batches by heart, any difference in rounding would grow with each step.
TEST(RanksTest, OneReductionAStepIsCloseToOneDevice) {
  for (const Technique& technique : {kDdp, kZero1, kZero3, kHsdp}) {
    const RankCase c{.ranks = 4, .technique = technique, .reduce = GradientReduce::once, .lr = 1e-3};
    const RankOutcome &want = on_one_device(c), got = train(c);
    ASSERT_TRUE(got.status.is_ok()) << got.status.to_string();
    for (std::size_t i = 0; i < want.losses.size(); ++i)
      EXPECT_NEAR(got.losses[i], want.losses[i], 1e-5 * want.losses[i]) << technique.name << " step " << i;
    for (const char* const payload : {"param", "m", "v"})
      EXPECT_LE(distance(got, want, payload), 1e-5) << technique.name << ", " << payload;
  }
}

}  // namespace
}  // namespace strata
