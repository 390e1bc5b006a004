#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include <strata/engine/plan_search.h>
#include <strata/runtime/str.h>

#include "engine/tiny_run.h"

// Compares the plan found by the search to the best one of all candidates.

namespace strata {
namespace {

bool asked_for_all() { return std::getenv("PLAN_SEARCH_ALL") != nullptr; }

std::vector<ProgramSet> programs() {
  DecoderConfig config = test::tiny_config();
  config.layers = 6;
  config.hidden = 128;
  config.heads = 2;
  config.ffn = 512;
  config.seq = 64;
  std::vector<ProgramSet> all;
  for (const Recompute recompute : kRecomputeModes)
    all.emplace_back()[ProgramRole::train] =
        test::tiny_programs(recompute, 4, config, DType::bf16)[ProgramRole::train];
  return all;
}

/// An RTX 4090 scaled down, so that a step of such a small model keeps all lanes busy.
MachineProfile small_machine(double compute, double link, double disk) {
  MachineProfile p = must(load_machine_profile("rtx-4090"));
  for (std::vector<double>* rates : {&p.flops_16bit, &p.flops_f32})
    for (double& rate : *rates) rate *= compute * 1e-2;
  p.attention_flops_per_s *= compute * 1e-2;
  p.device_bytes_per_s *= 1e-1;
  p.launch_s = 0;
  p.h2d_bytes_per_s *= link * 1e-2;
  p.d2h_bytes_per_s *= link * 1e-2;
  p.link_bytes_per_s *= link * 1e-2;
  p.link_latency_s = p.disk_latency_s = 1e-6;
  p.host_bytes_per_s *= 1e-1;
  for (double& s : p.update_s_per_param) s *= 10;
  p.read_bytes_per_s *= disk * 1e-2;
  p.write_bytes_per_s *= disk * 1e-2;
  p.disk_bytes_per_s *= disk * 1e-2;
  return p;
}

SessionOptions options_of(const TierBytes& budgets) {
  SessionOptions options;
  options.budgets = budgets;
  options.step_mode = StepMode::two_phase;
  return options;
}

/// Returns the shortest step of every combination that fits.
double best_of_all(std::span<const ProgramSet> all, const SessionOptions& options,
                   const MachineProfile& machine, int& n, std::string& which) {
  double best = 1e30;
  for (const ProgramSet& set : all)
    for (const StepMode mode : {StepMode::serial, StepMode::two_phase, StepMode::speculative})
      for (const PlacementPolicy policy : {PlacementPolicy::automatic, PlacementPolicy::device,
                                           PlacementPolicy::pinned, PlacementPolicy::nvme})
        for (const GradientPolicy gradients :
             {GradientPolicy::automatic, GradientPolicy::device, GradientPolicy::pinned})
          for (const std::int64_t chunk : {0, 4, 8, 16, 32})
            for (const std::optional<std::uint32_t> prefetch :
                 {std::optional<std::uint32_t>(), std::optional<std::uint32_t>(2),
                  std::optional<std::uint32_t>(6)}) {
              SessionOptions o = options;
              o.step_mode = mode;
              o.policy = policy;
              o.gradients = gradients;
              o.chunk_elems = chunk * ChunkLayout::kSliceAlign;
              o.prefetch = prefetch;
              const auto plan = Engine::plan_with(set, o, nullptr);
              if (!plan.has_value()) continue;
              ++n;
              const double step_s = must(forecast(**plan, machine)).step_s;
              if (step_s >= best) continue;
              best = step_s;
              which = str("programs ", &set - all.data(), ", ", to_string(mode), ", policy ",
                          static_cast<int>(policy), ", gradients ", static_cast<int>(gradients), ", chunk ",
                          chunk, ", prefetch ", prefetch ? static_cast<int>(*prefetch) : -1);
            }
  return best;
}

TEST(PlanSearchTest, TheFoundPlanIsWithinFivePercentOfTheBestOfAllCandidates) {
  const std::vector<ProgramSet> all = programs();
  constexpr std::uint64_t kMiBs = 1 << 20;
  const std::vector<TierBytes> budgets = asked_for_all()
                                             ? std::vector<TierBytes>{{8 * kMiBs, 64 * kMiBs, 0},
                                                                      {4 * kMiBs, 20 * kMiBs, 0},
                                                                      {4 * kMiBs, 8 * kMiBs, 64 * kMiBs},
                                                                      {16 * kMiBs, 4 * kMiBs, 64 * kMiBs},
                                                                      {6 * kMiBs, 12 * kMiBs, 64 * kMiBs}}
                                             : std::vector<TierBytes>{{6 * kMiBs, 12 * kMiBs, 64 * kMiBs}};
  const std::vector<double> rates =
      asked_for_all() ? std::vector<double>{0.25, 1, 4} : std::vector<double>{1};
  double worst = 0;
  int points = 0, candidates = 0;
  for (const TierBytes& budget : budgets)
    for (const double compute : rates)
      for (const double disk : rates) {
        const MachineProfile machine = small_machine(compute, 1, disk);
        PlanSearchRequest choices;
        choices.programs = all;
        choices.compared = all.size();
        const auto found = search_plan(choices, options_of(budget), machine);
        int n = 0;
        std::string which;
        const double best = best_of_all(all, options_of(budget), machine, n, which);
        ASSERT_EQ(found.has_value(), n > 0);
        if (!found.has_value()) continue;
        ++points;
        candidates += n;
        const double ratio = found->forecast.step_s / best;
        if (std::getenv("PLAN_SEARCH_SHOW") != nullptr) {
          std::printf(
              "budgets %zu %zu %zu MiB, compute %.2f, disk %.2f: found %.5f s, best %.5f s of %d: %.3f;",
              static_cast<std::size_t>(budget[0] / kMiBs), static_cast<std::size_t>(budget[1] / kMiBs),
              static_cast<std::size_t>(budget[2] / kMiBs), compute, disk, found->forecast.step_s, best, n,
              ratio);
          std::printf("\n  best: %s\n", which.c_str());
        }
        worst = std::max(worst, ratio);
      }
  std::printf("worst %.4f over %d points, %d candidates\n", worst, points, candidates);
  EXPECT_GT(points, 0);
  EXPECT_LE(worst, 1.05);
}

TEST(PlanSearchTest, WhatDoesNotFitIsRefusedWithTheSmallestBudgets) {
  const std::vector<ProgramSet> all = programs();
  PlanSearchRequest choices;
  choices.programs = all;
  choices.compared = all.size();
  choices.open = {false, false, false, false, false};
  const Status status =
      search_plan(choices, options_of({1 << 20, 1 << 20, 0}), small_machine(1, 1, 1)).status();
  EXPECT_EQ(status.code(), Code::does_not_fit);
  EXPECT_NE(status.message().find("it fits with:"), std::string::npos);
  choices.explains = false;
  EXPECT_EQ(search_plan(choices, options_of({1 << 20, 1 << 20, 0}), small_machine(1, 1, 1)).status().code(),
            Code::does_not_fit);
}

TEST(PlanSearchTest, ChunksOfSeveralRanksAreDivisibleAmongThem) {
  const std::vector<ProgramSet> all = programs();
  PlanSearchRequest choices;
  choices.programs = all;
  SessionOptions options = options_of({6 << 20, 12 << 20, 64 << 20});
  options.grad_accum = 3;
  options.ranks = {.ranks = 3, .zero = 2};
  options.chunk_elems = 0;
  const FoundPlan found = must(search_plan(choices, options, small_machine(1, 1, 1)));
  EXPECT_EQ(found.plan->layout.chunk_elems() % (3 * ChunkLayout::kSliceAlign), 0);
  EXPECT_GT(found.candidates, 4u);
}

TEST(PlanSearchTest, IsDeterministic) {
  const std::vector<ProgramSet> all = programs();
  PlanSearchRequest choices;
  choices.programs = all;
  choices.compared = all.size();
  const SessionOptions options = options_of({6 << 20, 12 << 20, 64 << 20});
  const FoundPlan a = must(search_plan(choices, options, small_machine(1, 1, 1))),
                  b = must(search_plan(choices, options, small_machine(1, 1, 1)));
  EXPECT_EQ(a.forecast.step_s, b.forecast.step_s);
  EXPECT_EQ(a.candidates, b.candidates);
  EXPECT_EQ(a.programs, b.programs);
}

}  // namespace
}  // namespace strata
