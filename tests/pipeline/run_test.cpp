// Runs whose ranks are the stages of a pipeline, against one rank.
#include <map>

#include <gmock/gmock.h>

#include <strata/graph/pipeline.h>
#include <strata/runtime/str.h>

#include "sharding/split_run.h"
#include "support/temp_dir.h"

namespace strata {
namespace {

using test::RankOutcome;

struct PipelineCase {
  const char* schedule = "1f1b";
  std::int32_t ranks = 2, virtual_stages = 1, micro_batches = 4;  // these of a copy's step
  std::int32_t copies = 1, zero = 0, shard_ranks = 0;
  bool tied = false;
  StepMode mode = StepMode::two_phase;
  DType compute = DType::f32;
  Recompute recompute = Recompute::none;
  void (*assign_homes)(const ChunkLayout& layout, Placement& placement) = nullptr;
};
void PrintTo(const PipelineCase& c, std::ostream* out) {
  *out << str(c.schedule, " on ", c.ranks, " ranks x ", c.virtual_stages, ", ", c.micro_batches,
              " micro-batches, ", c.copies, " copies, ZeRO ", c.zero, ", ", to_string(c.mode),
              c.tied ? ", tied" : "", c.compute == DType::bf16 ? ", bf16" : "",
              c.recompute == Recompute::none ? "" : ", recompute");
}

Result<Program> forward(const PipelineCase& c) {
  DecoderConfig config = test::split_model("gpt2", false);
  config.layers = 8;
  config.tied_head = c.tied;
  return record_decoder(config, 1, DecoderHead::loss, DecoderRows::whole, c.compute);
}
Result<Program> derived(const PipelineCase& c) {
  STRATA_TRY_ASSIGN(Program whole, forward(c));
  STRATA_TRY_ASSIGN(Program train, derive_backward(std::move(whole), "loss"));
  return fuse_add_norm(recompute_regions(std::move(train), c.recompute));
}

SessionOptions options(const PipelineCase& c, const std::string& dir) {
  SessionOptions all = test::swapping_options(dir, c.mode);
  all.grad_accum = c.micro_batches * c.copies;
  all.clip = 0.5;
  all.chunk_elems = 4096 * c.copies;
  all.prefetch = 2;
  all.undo_bytes = 3000000;
  return all;
}

Result<std::unique_ptr<const RunPlan>> plan_alone(const PipelineCase& c, const std::string& dir) {
  ProgramSet programs;
  STRATA_TRY_ASSIGN(programs[ProgramRole::train], derived(c));
  STRATA_TRY_ASSIGN(programs[ProgramRole::eval], forward(c));
  return Engine::plan(programs, options(c, dir));
}

Result<std::unique_ptr<const RunPlan>> plan_of_rank(const PipelineCase& c, std::int32_t rank,
                                                    const std::string& dir) {
  STRATA_TRY_ASSIGN(const Program whole, derived(c));
  STRATA_TRY_ASSIGN(const PipelineSchedule schedule,
                    make_pipeline_schedule(c.schedule, c.ranks, c.micro_batches, c.virtual_stages));
  STRATA_TRY_ASSIGN(const std::vector<std::int32_t> stages,
                    balance_stages(region_flops(whole), schedule.stages()));
  const PipelineRank place{.axis = static_cast<std::int32_t>(MeshAxis::pp),
                           .rank = rank % c.ranks,
                           .copies_axis = static_cast<std::int32_t>(MeshAxis::dp),
                           .copies = c.copies,
                           .copy = rank / c.ranks};
  ProgramSet programs;
  STRATA_TRY_ASSIGN(programs[ProgramRole::train], pipeline(whole, schedule, stages, place));
  STRATA_TRY_ASSIGN(const Program eval, forward(c));
  STRATA_TRY_ASSIGN(const PipelineSchedule forwards, forward_pipeline(c.ranks, 1, c.virtual_stages));
  STRATA_TRY_ASSIGN(programs[ProgramRole::eval], pipeline(eval, forwards, stages, place));
  SessionOptions all = options(c, dir);
  all.ranks = {.ranks = c.copies,
               .rank = place.copy,
               .zero = c.zero,
               .shard_ranks = c.shard_ranks,
               .reduce = GradientReduce::in_program};
  all.model.pp = c.ranks;
  all.model.rank = place.rank;
  return c.assign_homes != nullptr ? Engine::plan_with(programs, all, c.assign_homes)
                                   : Engine::plan(programs, all);
}

RankOutcome train(const test::RankRun& run) {
  return run.run([](Engine& engine, RankOutcome& outcome) {
    STRATA_TRY(engine.initialize(3));
    return test::train_split(engine, outcome, 4);
  });
}

RankOutcome train(const PipelineCase& c) {
  const test::TempDir dir;
  return train({.plan = [&](std::int32_t rank) { return plan_of_rank(c, rank, dir.path()); },
                .ranks = c.ranks * c.copies});
}

/// The results of one rank in the same step.
const RankOutcome& one_rank(const PipelineCase& c) {
  static std::map<std::string, RankOutcome> known;
  const PipelineCase same{
      .ranks = 1, .micro_batches = c.micro_batches * c.copies, .tied = c.tied, .compute = c.compute};
  const std::string key = ::testing::PrintToString(same);
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  const test::TempDir dir;
  return known
      .emplace(key, train({.plan = [&](std::int32_t) { return plan_alone(same, dir.path()); }, .ranks = 1}))
      .first->second;
}

class PipelineRuns : public ::testing::TestWithParam<PipelineCase> {};

TEST_P(PipelineRuns, HaveTheBitsOfOneRank) {
  const RankOutcome &want = one_rank(GetParam()), got = train(GetParam());
  ASSERT_TRUE(want.status.is_ok()) << want.status.to_string();
  ASSERT_TRUE(got.status.is_ok()) << got.status.to_string();
  EXPECT_GT(want.clipped, 0);
  test::expect_same_bits(got, want, "pipeline");
}

std::vector<PipelineCase> cases() {
  std::vector<PipelineCase> all;
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zb-h1"})
    for (const std::int32_t ranks : {2, 4})
      all.push_back({.schedule = schedule,
                     .ranks = ranks,
                     .virtual_stages = std::string_view(schedule) == "interleaved" ? 2 : 1});
  all.push_back({.schedule = "breadth-first", .virtual_stages = 4});
  all.push_back({.schedule = "breadth-first", .virtual_stages = 4, .assign_homes = test::mixed_homes});
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zb-h1"})
    for (const std::int32_t ranks : {1, 2, 4})
      all.push_back({.schedule = schedule,
                     .ranks = ranks,
                     .virtual_stages = std::string_view(schedule) == "interleaved" ? 2 : 1,
                     .micro_batches = ranks == 4 ? 4 : 2,
                     .copies = 2,
                     .zero = static_cast<std::int32_t>(all.size() % 4)});
  all.push_back({.micro_batches = 2, .copies = 4, .zero = 3, .shard_ranks = 2});
  all.push_back({.micro_batches = 1, .copies = 2, .zero = 2, .compute = DType::bf16});
  all.push_back({.micro_batches = 2, .copies = 2, .zero = 3, .assign_homes = test::mixed_homes});
  all.push_back({.ranks = 3, .micro_batches = 6});
  for (const StepMode mode : {StepMode::serial, StepMode::speculative, StepMode::hybrid})
    all.push_back({.mode = mode});
  all.push_back({.schedule = "zb-h1", .assign_homes = test::mixed_homes});
  all.push_back({.ranks = 4, .compute = DType::bf16});
  all.push_back({.schedule = "gpipe", .recompute = Recompute::full});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Schedules, PipelineRuns, ::testing::ValuesIn(cases()));

// The embedding's table is that of the head, which is in another stage.
TEST(PipelineRun, ATiedTableIsUpdatedAlikeOnBothRanks) {
  const PipelineCase c{.ranks = 2, .tied = true};
  const RankOutcome &want = one_rank(c), got = train(c);  // whose ranks agree, or it fails
  ASSERT_TRUE(got.status.is_ok()) << got.status.to_string();
  ASSERT_EQ(got.losses.size(), want.losses.size());
  for (std::size_t i = 0; i < want.losses.size(); ++i)
    EXPECT_NEAR(got.losses[i], want.losses[i], 1e-6 * want.losses[i]) << "step " << i + 1;
}

}  // namespace
}  // namespace strata
