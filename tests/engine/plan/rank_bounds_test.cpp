#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <strata/engine/forecast.h>
#include <strata/runtime/str.h>
#include <strata/session/ranks/rank_traffic.h>

#include "engine/flops_alone.h"
#include "engine/tiny_run.h"

// Compares a simulated step of one of several ranks to the lower bound of computation and network, from four
// times as much communication as computation to a quarter of it.

namespace strata {
namespace {

struct Point {
  std::int32_t ranks = 2, zero = 2;
  double communication = 1;  ///< seconds of a step on the network; computation takes one
};
std::string describe(const Point& at) {
  return str(at.ranks, " ranks, ZeRO-", at.zero, ", communication : computation ", at.communication);
}

ProgramSet decoder_programs() {
  DecoderConfig config = test::tiny_config();
  config.layers = 32;
  config.hidden = 128;
  config.ffn = 512;
  config.vocab = 64;
  ProgramSet programs;
  programs[ProgramRole::train] =
      test::tiny_programs(Recompute::none, 1, config, DType::bf16)[ProgramRole::train];
  return programs;
}

SessionOptions options_of(const Point& at) {
  SessionOptions options;
  options.step_mode = StepMode::two_phase;
  options.policy = PlacementPolicy::device;
  options.gradients = GradientPolicy::device;
  options.chunk_elems = 28 * ChunkLayout::kSliceAlign;
  options.grad_accum = at.ranks;
  options.ranks = {.ranks = at.ranks, .rank = at.ranks - 1, .zero = at.zero};
  return options;
}

// Only instructions and collectives take time.
MachineProfile machine_of(const RunPlan& plan, const Point& at) {
  MachineProfile p = test::flops_alone();
  const UseTrace& uses = plan.of(ProgramRole::train).uses;
  p.network_bytes_per_s = static_cast<double>(rank_traffic(plan, uses).all()) / at.communication;
  p.network_latency_s = 20e-6;
  return p;
}

// The bound for one micro-batch a rank: max(f C, g M) + max((1-f) C, (1-g) M), where C is the computation, f
// its forward fraction, M the time of all collectives and g the fraction of those that forward needs.
double bound_of(const RunPlan& plan, const LaneBusySeconds& lanes) {
  const UseTrace& uses = plan.of(ProgramRole::train).uses;
  const UseTrace::PassFlops flops = uses.pass_flops();
  const RankTraffic traffic = rank_traffic(plan, uses);
  const double f = flops.forward / flops.all();
  const double g = static_cast<double>(traffic.in_forward) / static_cast<double>(traffic.all());
  return std::max(f * lanes.compute, g * lanes.collective) +
         std::max((1 - f) * lanes.compute, (1 - g) * lanes.collective);
}

double ratio_at(const ProgramSet& programs, const Point& at) {
  SessionOptions options = options_of(at);
  auto plan = must(Engine::plan(programs, options));
  options.paced_flops_per_s = plan->of(ProgramRole::train).uses.pass_flops().all();
  plan = must(Engine::plan(programs, options));
  const MachineProfile machine = machine_of(*plan, at);
  const Forecast f = must(forecast(*plan, machine));
  const double bound = bound_of(*plan, f.lanes);
  if (std::getenv("RANK_BOUNDS_SHOW") != nullptr)
    std::printf("%s: %.4f s, bound %.4f s, %.3f; compute %.3f, collective %.3f, waits for it %.3f\n",
                describe(at).c_str(), f.step_s, bound, f.step_s / bound, f.lanes.compute, f.lanes.collective,
                static_cast<double>(f.times.of(StallCause::collective)) * 1e-9);
  return f.step_s / bound;
}

TEST(RankBoundsTest, TheForecastSendsWhatTheRankSends) {
  const Point at{.ranks = 4, .zero = 3};
  const auto plan = must(Engine::plan(decoder_programs(), options_of(at)));
  const Forecast f = must(forecast(*plan, machine_of(*plan, at)));
  EXPECT_EQ(f.moved.network, rank_traffic(*plan, plan->of(ProgramRole::train).uses).all());
  EXPECT_GT(f.lanes.collective, at.communication);
}

TEST(RankBoundsTest, WithoutANetworkCollectivesAreFree) {
  const Point at{.ranks = 4, .zero = 3};
  const auto plan = must(Engine::plan(decoder_programs(), options_of(at)));
  MachineProfile machine = machine_of(*plan, at);
  machine.network_bytes_per_s = 0;
  EXPECT_LT(must(forecast(*plan, machine)).lanes.collective, 1e-3);
}

TEST(RankBoundsTest, RanksThatAreThreadsShareTheMachine) {
  const Point at{.ranks = 4};
  const ProgramSet programs = decoder_programs();
  const auto compute_s = [&](bool threads) {
    SessionOptions options = options_of(at);
    options.ranks.threads = threads;
    options.ranks.on_machine = threads ? options.ranks.ranks : 1;
    const auto plan = must(Engine::plan(programs, options));
    MachineProfile machine = machine_of(*plan, at);
    machine.flops_16bit = machine.flops_f32 = {1e9};
    return must(forecast(*plan, machine)).lanes.compute;
  };
  EXPECT_NEAR(compute_s(true), 4 * compute_s(false), 0.01 * compute_s(true));
}

TEST(RankBoundsTest, ASimulatedStepOfARankIsAtMostFivePercentAboveTheLowerBound) {
  const ProgramSet programs = decoder_programs();
  double worst = 0;
  Point where;
  for (const std::int32_t ranks : {2, 4})
    for (const std::int32_t zero : {2, 3})
      for (const double communication : {0.25, 1.0, 4.0})
        if (const double ratio = ratio_at(programs, {ranks, zero, communication}); ratio > worst) {
          worst = ratio;
          where = {ranks, zero, communication};
        }
  std::printf("worst %.4f: %s\n", worst, describe(where).c_str());
  EXPECT_LE(worst, 1.05) << describe(where);
}

}  // namespace
}  // namespace strata
