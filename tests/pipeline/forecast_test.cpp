// Ranks of a pipeline in one virtual time: what they wait for each other is the bubble of their schedule.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include <strata/engine/forecast_ranks.h>
#include <strata/graph/pipeline.h>
#include <strata/runtime/str.h>

#include "engine/flops_alone.h"
#include "engine/tiny_run.h"

namespace strata {
namespace {

struct BubbleCase {
  const char* schedule = "1f1b";
  std::int32_t ranks = 2, virtual_stages = 1, micro_batches = 4;
};
void PrintTo(const BubbleCase& c, std::ostream* out) {
  *out << str(c.schedule, " on ", c.ranks, " ranks x ", c.virtual_stages, ", ", c.micro_batches,
              " micro-batches");
}

// Almost all work is that of equal layers, one for each stage.
DecoderConfig even_model(const BubbleCase& c) {
  DecoderConfig config = test::tiny_config();
  config.layers = c.ranks * c.virtual_stages;
  config.hidden = 256;
  config.ffn = 1024;
  config.vocab = 16;
  return config;
}

PipelineSchedule schedule_of(const BubbleCase& c) {
  return must(make_pipeline_schedule(c.schedule, c.ranks, c.micro_batches, c.virtual_stages));
}

std::unique_ptr<const RunPlan> plan_of(const BubbleCase& c, const Program& whole, std::int32_t rank,
                                       double flops_per_s) {
  const PipelineSchedule schedule = schedule_of(c);
  ProgramSet programs;
  programs[ProgramRole::train] =
      must(pipeline(whole, schedule, must(balance_stages(region_flops(whole), schedule.stages())),
                    {.axis = static_cast<std::int32_t>(MeshAxis::pp), .rank = rank}));
  SessionOptions options;
  options.policy = PlacementPolicy::device;
  options.gradients = GradientPolicy::device;
  options.grad_accum = c.micro_batches;
  options.model.pp = c.ranks;
  options.model.rank = rank;
  options.paced_flops_per_s = flops_per_s;
  return must(Engine::plan(programs, options));
}

class PipelineBubble : public ::testing::TestWithParam<BubbleCase> {};

TEST_P(PipelineBubble, IsThatOfTheSchedule) {
  const BubbleCase& c = GetParam();
  const Program whole = must(derive_backward(
      must(record_decoder(even_model(c), 1, DecoderHead::loss, DecoderRows::whole, DType::f32)), "loss"));
  const std::vector<double> costs = region_flops(whole);
  const double a_second = std::accumulate(costs.begin(), costs.end(), 0.0) * c.micro_batches / c.ranks;
  std::vector<std::unique_ptr<const RunPlan>> plans;
  for (std::int32_t rank = 0; rank < c.ranks; ++rank) plans.push_back(plan_of(c, whole, rank, a_second));
  std::vector<const RunPlan*> all;
  for (const auto& plan : plans) all.push_back(plan.get());
  const std::vector<Forecast> found = must(forecast_ranks(all, test::flops_alone()));
  // A tick is a millionth of the flops that take a second.
  const PipelineSchedule schedule = schedule_of(c);
  const std::vector<std::int32_t> stages = must(balance_stages(costs, schedule.stages()));
  const PipelineTiming want =
      time_pipeline(schedule, stage_ticks(whole, stages, schedule.stages(), a_second * 1e-6));
  for (const Forecast& rank : found)
    EXPECT_NEAR(rank.step_s, static_cast<double>(want.end) * 1e-6, 0.01 * rank.step_s);
  EXPECT_EQ(must(forecast_ranks(all, test::flops_alone())).front().step_s, found.front().step_s);
}

bool schedule_has_several(std::string_view schedule) {
  return schedule == "interleaved" || schedule == "breadth-first";
}

std::vector<BubbleCase> bubble_cases() {
  std::vector<BubbleCase> all;
  for (const std::int32_t ranks : {2, 4, 8})
    for (const std::int32_t times : {1, 2, 4})
      for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zb-h1", "breadth-first"})
        all.push_back({.schedule = schedule,
                       .ranks = ranks,
                       .virtual_stages = schedule_has_several(schedule) ? 2 : 1,
                       .micro_batches = ranks * times});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Schedules, PipelineBubble, ::testing::ValuesIn(bubble_cases()));

}  // namespace
}  // namespace strata
