// Ranks that share the model train it as one rank does: whole runs with their states, checkpoints and bytes.
#include <cmath>
#include <cstdlib>
#include <ostream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/str.h>
#include <strata/session/checkpoint.h>
#include <strata/session/ranks/rank_traffic.h>

#include "sharding/split_run.h"

namespace strata {
namespace test {

void PrintTo(const SplitCase& c, std::ostream* out) {
  *out << c.family;
  for (const std::string& preset : c.shard) *out << " " << preset;
  *out << str(" tp ", c.tp, " ", c.tp2, " ", c.tp3, " cp ", c.cp, " copies ", c.copies, " zero ", c.zero, " ",
              to_string(c.mode));
}

}  // namespace test

namespace {

using test::RankOutcome;
using test::SplitCase;
using ::testing::HasSubstr;

const RankOutcome& one_rank(const SplitCase& like) {
  static std::map<std::pair<std::string, bool>, RankOutcome> known;
  const std::pair key(like.family, like.in_threes());
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  // The same model: for a case of three ranks it has other dimensions.
  SplitCase one = like;
  one.copies = 1;
  one.zero = 0;
  const test::TempDir dir;
  const test::RankRun run{.plan = [&](std::int32_t) { return test::plan_alone(one, dir.path()); }};
  return known
      .emplace(key, run.run([&](Engine& engine, RankOutcome& outcome) {
        STRATA_TRY(engine.initialize(3));
        return test::train_split(engine, outcome, one.steps);
      }))
      .first->second;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return worst;
}

class SplitRuns : public ::testing::TestWithParam<SplitCase> {};

TEST_P(SplitRuns, TrainLikeOneRank) {
  const RankOutcome &want = one_rank(GetParam()), got = test::train_split(GetParam());
  ASSERT_TRUE(got.status.is_ok()) << got.status.to_string();
  EXPECT_GT(want.clipped, 0);
  EXPECT_EQ(got.clipped, want.clipped);
  ASSERT_EQ(got.losses.size(), want.losses.size());
  for (std::size_t i = 0; i < want.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i], want.losses[i], 1e-4) << "step " << i + 1;
    EXPECT_NEAR(std::bit_cast<double>(got.bits[2 * i + 1]), std::bit_cast<double>(want.bits[2 * i + 1]),
                1e-3 * std::bit_cast<double>(want.bits[2 * i + 1]))
        << "norm of step " << i + 1;
  }
  EXPECT_NEAR(got.evaluated[0], want.evaluated[0], 1e-4);
  for (const auto& [name, values] : want.states.at("param")) {
    const std::vector<float>& own = got.states.at("param").at(name);
    ASSERT_EQ(own.size(), values.size()) << name;
    // Each step is as long as the learning rate, in the direction of signs, which rounding decides where a
    // gradient is almost 0.
    EXPECT_LE(largest_difference(own, values), 2e-4 * GetParam().steps) << name;
  }
}

/// Every technique on that many ranks, if it is one for them.
std::vector<SplitCase> techniques(const std::string& family, std::int32_t ranks) {
  const bool is_cubic = ranks == 8, is_square = ranks % 2 == 0 && ranks > 2;
  std::vector<SplitCase> all;
  for (const std::vector<std::string>& shard : {std::vector<std::string>{"megatron"},
                                                {"megatron+sp"},
                                                {"megatron+sp", "sliced"},
                                                {"megatron+sp", "vocab"}})
    all.push_back({.family = family, .shard = shard, .tp = ranks});
  for (const char* preset : {"allgather", "ring"})
    if (ranks < 8) all.push_back({.family = family, .shard = {preset}, .cp = ranks});
  all.push_back({.family = family, .shard = {"ulysses"}, .cp = ranks});
  if (is_square) {
    all.push_back({.family = family, .shard = {"2d"}, .tp = ranks / 2, .tp2 = 2});
    all.push_back({.family = family, .shard = {"megatron", "ring"}, .tp = ranks / 2, .cp = 2});
  }
  for (const char* preset : {"2.5d", "3d"})
    if (is_cubic) all.push_back({.family = family, .shard = {preset}, .tp = 2, .tp2 = 2, .tp3 = 2});
  return all;
}

/// All of them for many steps if SPLIT_STEPS says so, else some.
std::vector<SplitCase> split_cases() {
  std::vector<SplitCase> cases;
  if (const char* const steps = std::getenv("SPLIT_STEPS")) {
    for (const char* family : {"gpt2", "llama", "bloom", "glm4", "qwen3"})
      for (const std::int32_t ranks : {2, 3, 4, 8})
        for (SplitCase& each : techniques(family, ranks)) {
          each.steps = std::atoi(steps);
          cases.push_back(std::move(each));
        }
    return cases;
  }
  for (const char* family : {"gpt2", "qwen2"})
    for (const std::int32_t tp : {3, 8}) cases.push_back({.family = family, .shard = {"megatron"}, .tp = tp});
  for (SplitCase& each : techniques("llama", 8)) cases.push_back(std::move(each));
  cases.push_back({.family = "gpt2", .shard = {"megatron"}, .tp = 2, .copies = 2, .zero = 3});
  cases.push_back({.family = "llama",
                   .shard = {"megatron+sp", "vocab"},
                   .tp = 2,
                   .copies = 4,
                   .zero = 3,
                   .shard_ranks = 2});
  cases.push_back({.family = "qwen2_moe", .shard = {"megatron"}, .tp = 2, .copies = 2, .zero = 3});
  cases.push_back({.family = "mixtral", .shard = {"megatron"}, .tp = 2});  // all MLPs are mixtures
  cases.push_back({.family = "gpt_oss", .shard = {"ring"}, .cp = 2});
  cases.push_back({.family = "bloom", .shard = {"ring"}, .cp = 4, .recompute = Recompute::selective});
  cases.push_back({.family = "llama", .shard = {"megatron+sp"}, .tp = 8, .recompute = Recompute::full});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Techniques, SplitRuns, ::testing::ValuesIn(split_cases()));

TEST(SplitRun, NoBitDependsOnStepModesPlacementOrCopies) {
  SplitCase c{.family = "llama", .shard = {"megatron+sp"}, .tp = 2};
  const RankOutcome want = test::train_split(c);
  ASSERT_TRUE(want.status.is_ok()) << want.status.to_string();
  for (const StepMode mode :
       {StepMode::serial, StepMode::speculative, StepMode::hybrid, StepMode::automatic}) {
    c.mode = mode;
    test::expect_same_bits(test::train_split(c), want, std::string(to_string(mode)));
  }
  c.mode = StepMode::two_phase;
  c.assign_homes = test::mixed_homes;
  test::expect_same_bits(test::train_split(c), want, "three tiers");
  c.ranks_differ = true;
  test::expect_same_bits(test::train_split(c), want, "three tiers on one rank");
  c.assign_homes = nullptr;
  for (const std::int32_t zero : {0, 2, 3}) {
    c.copies = 2;
    c.zero = zero;
    test::expect_same_bits(test::train_split(c), want, str("two copies, zero ", zero));
  }
}

TEST(SplitRun, ACheckpointGoesOnWithAnyNumberOfRanks) {
  const test::TempDir saved;
  SplitCase c{.family = "llama", .shard = {"megatron+sp", "vocab"}, .tp = 4, .copies = 2, .zero = 2};
  const auto save = [&](Engine& engine, RankOutcome& outcome) {
    STRATA_TRY(engine.initialize(3));
    STRATA_TRY(test::train_split(engine, outcome, 2));
    return save_checkpoint(engine, posix_io(), saved.path(), {}, 0).status();
  };
  const RankOutcome first = test::run_split(c, save);
  ASSERT_TRUE(first.status.is_ok()) << first.status.to_string();
  const auto resume = [&](Engine& engine, RankOutcome& outcome) {
    STRATA_TRY(load_checkpoint(engine, posix_io(), saved.path() + "/step-00000002").status());
    return test::collect_parts(engine, outcome);
  };
  for (const auto& [tp, copies] : {std::pair{1, 1}, {2, 1}, {8, 1}, {2, 2}}) {
    c.tp = tp;
    c.shard = {"megatron"};
    if (tp == 2) c.shard.emplace_back("vocab");
    c.copies = copies;
    c.zero = copies == 1 ? 0 : 3;
    const RankOutcome got = test::run_split(c, resume);
    ASSERT_TRUE(got.status.is_ok()) << got.status.to_string();
    for (const auto& [payload, tensors] : first.states)
      for (const auto& [name, values] : tensors)
        EXPECT_EQ(largest_difference(got.states.at(payload).at(name), values), 0)
            << payload << " of " << name << " with tp " << tp;
  }
}

TEST(SplitRun, RanksWithOtherCollectivesAreRefused) {
  SplitCase c{.family = "llama", .shard = {"megatron"}, .tp = 2};
  const test::TempDir dir;
  const test::RankRun run{.plan =
                              [&](std::int32_t rank) {
                                SplitCase own = c;
                                if (rank == 1) own.shard = {"megatron+sp"};
                                return test::plan_split(own, rank, dir.path());
                              },
                          .ranks = 2};
  const RankOutcome got = run.run([](Engine&, RankOutcome&) { return Status::ok(); });
  EXPECT_EQ(got.status.code(), Code::invalid);
  EXPECT_THAT(
      std::string(got.status.message()),
      ::testing::HasSubstr("the same collectives of the model: line 1 is \"all_reduce along tp in train\" on "
                           "rank 0 of 2 (threads) and \"all_gather along tp in train\" on rank 1"));
}

TEST(SplitRun, RanksSendWhatTheFormulaSays) {
  for (const SplitCase& c : {SplitCase{.family = "gpt2", .shard = {"megatron"}, .tp = 2},
                             {.family = "llama", .shard = {"megatron"}, .tp = 8},
                             {.family = "llama", .shard = {"megatron+sp"}, .tp = 4},
                             {.family = "llama", .shard = {"3d"}, .tp = 2, .tp2 = 2, .tp3 = 2},
                             {.family = "llama", .shard = {"ring"}, .cp = 4}}) {
    std::uint64_t planned = 0;
    const RankOutcome got = test::run_split(c, [&](Engine& engine, RankOutcome&) {
      STRATA_TRY(engine.initialize(3));
      test::CountingBatches batches(test::kSplitVocab);
      StepReport report;
      const std::uint64_t before = engine.group_counters().sent_bytes;
      STRATA_TRY(engine.train_step(batches, 1e-2, report));
      const std::uint64_t sent = engine.group_counters().sent_bytes - before;
      const std::uint64_t want = rank_traffic(engine.plan(), engine.plan().of(ProgramRole::train).uses).all();
      if (engine.state_plan().options.model.rank == 0) planned = want;
      return sent == want ? Status::ok()
                          : Status::error(Code::internal, str("sent ", sent, ", planned ", want));
    });
    EXPECT_TRUE(got.status.is_ok()) << c.family << " tp " << c.tp << ": " << got.status.to_string();
    EXPECT_GT(planned, 0u);
  }
}

TEST(SplitRun, AGradientThatIsNotFiniteIsNamedOnAllRanks) {
  const SplitCase c{.family = "llama", .shard = {"megatron"}, .tp = 2};
  const RankOutcome got = test::run_split(c, [&](Engine& engine, RankOutcome&) {
    STRATA_TRY(engine.initialize(3));
    // Only rows of rank 1 become infinite.
    STRATA_TRY(engine.fill(Payload::param, [&](const StatePiece& piece, std::span<float> values) {
      const bool bad = piece.name == "layers.1.mlp_in.weight" && engine.state_plan().options.model.rank == 1;
      std::fill(values.begin(), values.end(), bad ? 1e30f : 0.01f);
      return Status::ok();
    }));
    test::CountingBatches batches(test::kSplitVocab);
    StepReport report;
    return engine.train_step(batches, 1e-2, report);
  });
  EXPECT_EQ(got.status.code(), Code::diverged);
  EXPECT_THAT(std::string(got.status.message()), HasSubstr("the gradient of "));
}

TEST(SplitRun, AProgramOfAnotherRankIsRefused) {
  const SplitCase c{.family = "llama", .shard = {"megatron"}, .tp = 2};
  SessionOptions options;
  options.grad_accum = 1;
  options.model = {.tp = 2, .rank = 1};
  const auto plan = Engine::plan(must(test::split_programs(c, 0)), options);
  EXPECT_THAT(plan.status().to_string(), HasSubstr("program train is that of rank 0 of 2 along tp"));
  options.model = {};
  const auto alone = Engine::plan(must(test::split_programs(c, 0)), options);
  EXPECT_THAT(alone.status().to_string(), HasSubstr("but this is rank 0 of 1"));
}

}  // namespace
}  // namespace strata
