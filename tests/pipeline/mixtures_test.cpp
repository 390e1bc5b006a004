// Mixtures of all axes over three tiers train as one rank does. All of them for many steps if MIXTURE_STEPS
// says so, else some.
#include <cmath>
#include <cstdlib>
#include <map>

#include <gtest/gtest.h>

#include <strata/runtime/str.h>
#include <strata/session/ranks/rank_traffic.h>

#include "sharding/split_run.h"

namespace strata {
namespace {

using test::RankOutcome;
using test::SplitCase;

std::string name_of(const SplitCase& c) {
  std::string presets;
  for (const std::string& preset : c.shard) presets += " " + preset;
  return str(c.family, " pp ", c.pp, " ", c.schedule, " x ", c.virtual_stages, " tp ", c.tp, " ", c.tp2,
             " cp ", c.cp, " copies ", c.copies, " zero ", c.zero, " ",
             c.reduce == GradientReduce::once ? "once " : "", to_string(c.mode), presets,
             c.recompute == Recompute::none ? "" : " recomputes",
             c.assign_homes != nullptr ? " mixed homes" : "");
}

/// Every rank sends what the formula says and holds what is planned.
Status train_as_planned(Engine& engine, RankOutcome& outcome, int steps) {
  STRATA_TRY(engine.initialize(3));
  const std::uint64_t before = engine.group_counters().sent_bytes;
  test::CountingBatches batches(test::kSplitVocab);
  for (int step = 0; step < steps; ++step) {
    StepReport report;
    STRATA_TRY(engine.train_step(batches, 1e-3, report));
    outcome.bits.push_back(std::bit_cast<std::uint32_t>(report.loss));
    outcome.losses.push_back(report.loss);
  }
  const std::uint64_t sent = engine.group_counters().sent_bytes - before,
                      of_step = rank_traffic(engine.plan(), engine.plan().of(ProgramRole::train).uses).all();
  if (sent != of_step * static_cast<std::uint64_t>(steps))
    return Status::error(Code::internal,
                         str("sent ", sent, " bytes in ", steps, " steps, planned ", of_step, " a step"));
  if (engine.peak_bytes() != engine.plan().planned_peak)
    return Status::error(Code::internal, "a tier holds something else than is planned");
  return {};
}

const RankOutcome& losses_of_one_rank(const SplitCase& like) {
  static std::map<std::tuple<std::string, bool, std::int32_t, int>, RankOutcome> known;
  const std::tuple key(like.family, like.in_threes(), like.layers(), like.steps);
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  SplitCase one = like;
  one.copies = 1;
  one.zero = one.shard_ranks = 0;
  const test::TempDir dir;
  const test::RankRun run{.plan = [&](std::int32_t) { return test::plan_alone(one, dir.path()); }};
  return known
      .emplace(key, run.run([&](Engine& engine, RankOutcome& outcome) {
        return train_as_planned(engine, outcome, one.steps);
      }))
      .first->second;
}

}  // namespace
namespace test {
void PrintTo(const SplitCase& c, std::ostream* out) { *out << name_of(c); }
}  // namespace test
namespace {

class Mixtures : public ::testing::TestWithParam<SplitCase> {};

TEST_P(Mixtures, TrainLikeOneRankAsPlanned) {
  const SplitCase& c = GetParam();
  const RankOutcome& want = losses_of_one_rank(c);
  ASSERT_TRUE(want.status.is_ok()) << want.status.to_string();
  const RankOutcome got = test::run_split(
      c, [&](Engine& engine, RankOutcome& outcome) { return train_as_planned(engine, outcome, c.steps); });
  ASSERT_TRUE(got.status.is_ok()) << got.status.to_string();
  ASSERT_EQ(got.losses.size(), want.losses.size());
  for (std::size_t i = 0; i < want.losses.size(); ++i)
    EXPECT_NEAR(got.losses[i], want.losses[i], 1e-4) << "step " << i + 1;
}

std::vector<SplitCase> all_mixtures() {
  const std::vector<std::string> sp = {"megatron+sp"}, vocab = {"megatron+sp", "vocab"}, ring = {"ring"},
                                 ulysses = {"ulysses"}, gather = {"allgather"}, both = {"megatron", "ring"};
  std::vector<SplitCase> all = {
      {.shard = vocab, .tp = 2, .pp = 2},
      {.family = "llama", .shard = ring, .cp = 2, .pp = 2, .schedule = "zb-h1"},
      {.family = "llama", .shard = sp, .tp = 2, .pp = 2, .schedule = "gpipe", .copies = 2, .zero = 3},
      {.shard = both, .tp = 2, .cp = 2, .pp = 2},
      {.pp = 4, .copies = 2, .zero = 2},
      {.family = "llama", .pp = 2, .virtual_stages = 2, .schedule = "interleaved", .copies = 2, .zero = 3},
      {.family = "qwen3",
       .shard = ulysses,
       .cp = 2,
       .pp = 2,
       .copies = 2,
       .zero = 2,
       .mode = StepMode::speculative},
      {.shard = vocab, .tp = 2, .pp = 2, .copies = 2, .zero = 2, .reduce = GradientReduce::once},
      {.family = "qwen2_moe", .pp = 2, .copies = 2, .zero = 3},
  };
  if (std::getenv("MIXTURE_STEPS") == nullptr) return all;
  const std::vector<SplitCase> more = {
      {.family = "bloom", .shard = gather, .cp = 2, .pp = 2, .schedule = "gpipe"},
      {.family = "glm4", .shard = vocab, .tp = 4, .pp = 2},
      {.family = "llama", .shard = vocab, .tp = 2, .pp = 4, .schedule = "zb-h1"},
      {.family = "llama", .shard = ring, .cp = 4, .pp = 2, .recompute = Recompute::full},
      {.shard = {"2d"}, .tp = 2, .tp2 = 2, .pp = 2},
      {.pp = 8},
      {.family = "llama", .pp = 8, .schedule = "gpipe", .mode = StepMode::serial},
      {.shard = sp, .tp = 2, .pp = 4, .schedule = "gpipe", .recompute = Recompute::selective},
      {.family = "qwen3",
       .shard = {"megatron"},
       .tp = 2,
       .pp = 2,
       .virtual_stages = 2,
       .schedule = "interleaved"},
      {.family = "llama", .shard = ring, .cp = 2, .pp = 2, .copies = 2, .zero = 3, .shard_ranks = 2},
      {.pp = 2, .copies = 4, .zero = 3, .shard_ranks = 2, .mode = StepMode::hybrid},
      {.family = "llama", .pp = 2, .copies = 4, .zero = 0},
      {.family = "bloom", .pp = 3, .schedule = "zb-h1", .copies = 2, .zero = 2},
      {.shard = {"megatron"}, .tp = 3, .pp = 2},
      {.family = "llama", .shard = ulysses, .cp = 2, .pp = 4},
      {.family = "glm4",
       .pp = 4,
       .copies = 2,
       .zero = 3,
       .reduce = GradientReduce::once,
       .mode = StepMode::automatic},
      {.shard = vocab, .tp = 4, .copies = 2, .zero = 3},
      {.family = "llama", .shard = both, .tp = 2, .cp = 2, .copies = 2, .zero = 2},
  };
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
std::vector<SplitCase> mixtures() {
  const char* const steps = std::getenv("MIXTURE_STEPS");
  std::vector<SplitCase> all = all_mixtures();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (steps != nullptr) all[i].steps = std::atoi(steps);
    if (i % 2 == 1 && all[i].pp > 1 && all[i].reduce == GradientReduce::each)
      all[i].assign_homes = test::mixed_homes;
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Meshes, Mixtures, ::testing::ValuesIn(mixtures()));

}  // namespace
}  // namespace strata
