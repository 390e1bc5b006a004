#include <functional>
#include <numeric>

#include <gtest/gtest.h>

#include <strata/engine/forecast.h>
#include <strata/engine/region_costs.h>
#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>

#include "engine/tiny_run.h"

namespace strata {
namespace {

using test::tiny_programs;

/// A machine on which nothing takes time except what a test changes.
MachineProfile fast_machine() {
  MachineProfile p;
  p.name = "fast";
  p.cores = 8;
  p.memory = {kUnlimited, kUnlimited, kUnlimited};
  p.gemm_sizes = {1};
  p.flops_16bit = p.flops_f32 = {1e18};
  p.attention_flops_per_s = p.device_bytes_per_s = 1e18;
  p.h2d_bytes_per_s = p.d2h_bytes_per_s = 1e18;
  p.link_bytes_per_s = 2e18;
  p.host_bytes_per_s = 1e18;
  p.update_s_per_param = {1e-18, 1e-18, 1e-18};
  p.read_bytes_per_s = p.write_bytes_per_s = 1e18;
  p.disk_bytes_per_s = 2e18;
  return p;
}

std::unique_ptr<const RunPlan> plan_of(StepMode mode, PlacementPolicy policy, std::int32_t grad_accum = 1,
                                       DType dtype = DType::bf16) {
  SessionOptions options;
  options.step_mode = mode;
  options.policy = policy;
  options.grad_accum = grad_accum;
  options.chunk_elems = 2 * ChunkLayout::kSliceAlign;
  if (mode == StepMode::automatic) options.undo_bytes = kUnlimited;
  DecoderConfig config = test::tiny_config();
  config.layers = 8;
  return must(Engine::plan(tiny_programs(Recompute::none, 3, config, dtype), options));
}

StallCause longest_stall(const Forecast& f) {
  const auto& stalls = f.times.stalled_ns;
  return static_cast<StallCause>(std::max_element(stalls.begin(), stalls.end()) - stalls.begin());
}

TEST(ForecastTest, AStepThatOnlyComputesTakesTheTimeOfItsInstructions) {
  const auto plan = plan_of(StepMode::serial, PlacementPolicy::device);
  MachineProfile machine = fast_machine();
  machine.launch_s = 1e-3;
  const Forecast f = must(forecast(*plan, machine));
  const double lower_bound_s = 1e-3 * static_cast<double>(plan->of(ProgramRole::train).code.size());
  EXPECT_GE(f.step_s, lower_bound_s);
  EXPECT_LE(f.step_s, 1.02 * lower_bound_s);
  EXPECT_GT(f.times.computing_ns, 0.98 * 1e9 * lower_bound_s);
}

std::unique_ptr<const RunPlan> plan_with(const std::function<Program(Program)>& pass) {
  DecoderConfig config = test::tiny_config();
  config.vocab = 64;
  config.hidden = 128;  // heads of 64 elements
  ProgramSet set = test::unfused_programs(Recompute::none, 2, config, DType::bf16);
  for (Program* program : {&set[ProgramRole::eval], &set[ProgramRole::train], &set[ProgramRole::infer]})
    *program = pass(std::move(*program));
  SessionOptions options;
  options.policy = PlacementPolicy::device;
  options.step_mode = StepMode::serial;
  options.chunk_elems = 2 * ChunkLayout::kSliceAlign;
  return must(Engine::plan(std::move(set), options));
}
double flops_of(const RunPlan& plan, const std::function<bool(Op)>& is_one) {
  double flops = 0;
  const LoweredProgram& train = plan.of(ProgramRole::train);
  for (std::size_t i = 0; i < train.code.size(); ++i)
    if (is_one(train.code[i].op)) flops += train.uses.positions[i].flops;
  return flops;
}

TEST(ForecastTest, AttentionTakesTheRateOfItsBackend) {
  const auto is_attention = [](Op op) { return op == Op::attention || op == Op::attention_backward; };
  MachineProfile machine = fast_machine();
  machine.attention_flops_per_s = 1e6;
  const auto seconds = [&](AttentionBackend by) {
    const auto plan = plan_with([&](Program p) {
      return select_attention_backend(std::move(p), {{by}, {by}});
    });
    return must(forecast(*plan, machine)).step_s / flops_of(*plan, is_attention);
  };
  EXPECT_NEAR(seconds(AttentionBackend::mma), 1e-6, 1e-8);
  EXPECT_NEAR(seconds(AttentionBackend::wgmma), 1e-6, 1e-8) << "whose rate is not known";
  machine.wgmma_attention_flops_per_s = 2e6;
  machine.cudnn_attention_flops_per_s = 4e6;
  EXPECT_NEAR(seconds(AttentionBackend::mma), 1e-6, 1e-8);
  EXPECT_NEAR(seconds(AttentionBackend::wgmma), 0.5e-6, 1e-8);
  EXPECT_NEAR(seconds(AttentionBackend::cudnn), 0.25e-6, 1e-8);
  // A forward has 2 of 7 parts of the operations, a backward 5.
  machine.attention_backward_flops_per_s = 0.5e6;
  machine.cudnn_attention_backward_flops_per_s = 2e6;
  EXPECT_NEAR(seconds(AttentionBackend::mma), (2 * 1e-6 + 5 * 2e-6) / 7, 1e-8);
  EXPECT_NEAR(seconds(AttentionBackend::wgmma), 0.5e-6, 1e-8) << "whose rate backward is that of forward";
  EXPECT_NEAR(seconds(AttentionBackend::cudnn), (2 * 0.25e-6 + 5 * 0.5e-6) / 7, 1e-8);
}

// Each block of logits reads the weight and adds to all of its gradient: on a GPU blocks are larger.
TEST(ForecastTest, AHeadIsPricedByItsBlocks) {
  const auto seconds = [](std::int64_t vocab, bool on_gpu) {
    DecoderConfig config = test::tiny_config();
    config.vocab = vocab;
    config.seq = 2048;
    ProgramSet set = test::unfused_programs(Recompute::none, 2, config, DType::bf16);
    if (on_gpu) set[ProgramRole::train] = assign_gemm_workspaces(std::move(set[ProgramRole::train]));
    MachineProfile machine = fast_machine();
    machine.device_bytes_per_s = 1e12;
    const auto costs = region_seconds(set[ProgramRole::train], machine);
    return std::accumulate(costs.begin(), costs.end(), 0.0);
  };
  const double weights = 131072.0 * static_cast<double>(test::tiny_config().hidden);
  // 4,096 rows of logits in 64 blocks of 64 rows, or in 4 of 1,024, each of which reads w. On the host, dx
  // and dw are computed of 256 rows at a time: of each, w is read again, and dw read and written in f32.
  const double bytes = weights * (60 * 2 + 12 * (2 + 8));
  EXPECT_NEAR(seconds(131072, false) - seconds(131072, true), bytes / 1e12, 0.02 * bytes / 1e12);
}

TEST(ForecastTest, Fp8GemmsTakeTheirOwnRate) {
  const auto is_fp8 = [](Op op) { return op == Op::fp8_gemm; };
  const auto plan = plan_with(&use_fp8);
  ASSERT_GT(flops_of(*plan, is_fp8), 0);
  MachineProfile machine = fast_machine();
  machine.flops_16bit = {1e6};
  const double as_of_16bit = must(forecast(*plan, machine)).step_s;
  machine.flops_8bit = {2e6};
  const double saved = as_of_16bit - must(forecast(*plan, machine)).step_s;
  EXPECT_NEAR(saved, 0.5e-6 * flops_of(*plan, is_fp8), 0.01 * saved);
}

TEST(ForecastTest, TheOptimizersTimeFollowsFromTheNumberOfParameters) {
  const auto plan = plan_of(StepMode::serial, PlacementPolicy::pinned);
  MachineProfile machine = fast_machine();
  machine.update_s_per_param = {1e-6, 1e-6, 1e-6};
  const Forecast f = must(forecast(*plan, machine));
  std::int64_t held = 0;
  for (const ChunkInfo& chunk : plan->layout.chunks()) held += chunk.n_elems;
  EXPECT_GE(held, plan->n_params(true));
  EXPECT_NEAR(f.lanes.cpu, 1e-6 * static_cast<double>(held), 0.01 * f.lanes.cpu);
  EXPECT_NEAR(f.step_s, f.lanes.cpu, 0.02 * f.step_s);
  EXPECT_EQ(longest_stall(f), StallCause::optimizer);
}

TEST(ForecastTest, BytesOfTheLinkAreCounted) {
  const auto plan = plan_of(StepMode::two_phase, PlacementPolicy::pinned);
  const Forecast f = must(forecast(*plan, fast_machine()));
  std::uint64_t gradients = 0, params = 0;
  for (ChunkId chunk = 0; chunk < plan->layout.n_chunks(); ++chunk) {
    gradients += plan->layout.payload_bytes(chunk, Payload::grad);
    params += plan->layout.payload_bytes(chunk, Payload::param);
  }
  EXPECT_GE(gradients,
            2 * static_cast<std::uint64_t>(plan->n_params(true)));  // bf16, and chunks are not all full
  EXPECT_EQ(f.moved.d2h, gradients + sizeof(float));                // plus the loss
  EXPECT_GE(f.moved.h2d, params);
  EXPECT_LE(f.moved.h2d, params + 4096) << "and the tokens";
  EXPECT_EQ(f.moved.nvme_read, 0u);
}

TEST(ForecastTest, TheSlowTierTakesItsTime) {
  const auto plan = plan_of(StepMode::serial, PlacementPolicy::nvme);
  MachineProfile machine = fast_machine();
  machine.read_bytes_per_s = machine.write_bytes_per_s = machine.disk_bytes_per_s = 1e6;  // half duplex
  const Forecast f = must(forecast(*plan, machine));
  const double lower_bound_s = 1e-6 * static_cast<double>(f.moved.nvme_read + f.moved.nvme_write);
  EXPECT_GT(f.moved.nvme_read, 0u);
  EXPECT_NEAR(f.step_s, lower_bound_s, 0.05 * lower_bound_s);
  EXPECT_EQ(longest_stall(f), StallCause::nvme);
}

TEST(ForecastTest, APlanWithASlowTierThatTheProfileLacksHasNoForecast) {
  MachineProfile machine = fast_machine();
  machine.read_bytes_per_s = machine.write_bytes_per_s = machine.disk_bytes_per_s = 0;
  EXPECT_TRUE(forecast(*plan_of(StepMode::serial, PlacementPolicy::pinned), machine).has_value());
  const Status status = forecast(*plan_of(StepMode::serial, PlacementPolicy::nvme), machine).status();
  EXPECT_EQ(status.code(), Code::unsupported);
  EXPECT_NE(status.message().find("the profile of fast has no slow tier"), std::string::npos);
}

TEST(ForecastTest, OverlapHidesTheOptimizerUnderTheNextForward) {
  MachineProfile machine = fast_machine();
  machine.launch_s = 1e-3;
  machine.update_s_per_param = {1e-6, 1e-6, 1e-6};
  const Forecast serial = must(forecast(*plan_of(StepMode::serial, PlacementPolicy::pinned), machine));
  const Forecast hidden = must(forecast(*plan_of(StepMode::two_phase, PlacementPolicy::pinned), machine));
  EXPECT_LT(hidden.step_s, serial.step_s - 0.5 * std::min(hidden.lanes.cpu, hidden.lanes.compute / 3));
}

TEST(ForecastTest, AutomaticSettlesOnTheFasterKindOfStep) {
  MachineProfile machine = fast_machine();
  machine.launch_s = 1e-3;
  machine.update_s_per_param = {1e-6, 1e-6, 1e-6};
  const Forecast chosen = must(forecast(*plan_of(StepMode::automatic, PlacementPolicy::pinned), machine));
  const Forecast waits = must(forecast(*plan_of(StepMode::two_phase, PlacementPolicy::pinned), machine));
  EXPECT_LE(chosen.step_s, 1.02 * waits.step_s);
}

// Speculative updates hide under backward, but must be redone if the step is clipped.
TEST(ForecastTest, AClippedStepRedoesItsSpeculativeUpdates) {
  MachineProfile machine = fast_machine();
  machine.launch_s = 1e-4;
  machine.update_s_per_param = {1e-7, 1e-7, 1e-7};
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const auto plan = plan_of(StepMode::speculative, PlacementPolicy::pinned, 1, dtype);
    const auto step_s = [&](double clipped) {
      return must(forecast(*plan, machine, {.clipped = clipped})).step_s;
    };
    const double never = step_s(0), always = step_s(1);
    EXPECT_GT(always, 1.1 * never);
    EXPECT_NEAR(step_s(0.5), (never + always) / 2, 0.2 * (always - never));
    EXPECT_NEAR(step_s(0.02), 0.98 * never + 0.02 * always, 0.01 * (always - never));
  }
}

TEST(ForecastTest, AutomaticWaitsForTheNormWhereEveryStepIsClipped) {
  MachineProfile machine = fast_machine();
  machine.launch_s = 2e-4;
  machine.update_s_per_param = {1e-7, 1e-7, 1e-7};
  const auto plan = plan_of(StepMode::automatic, PlacementPolicy::pinned);
  EXPECT_GT(must(forecast(*plan, machine)).speculated_share, 0);
  const Forecast clipped = must(forecast(*plan, machine, {.clipped = 1}));
  EXPECT_EQ(clipped.speculated_share, 0);
  const Forecast waits = must(forecast(*plan_of(StepMode::two_phase, PlacementPolicy::pinned), machine));
  EXPECT_NEAR(clipped.step_s, waits.step_s, 0.05 * waits.step_s);
}

TEST(ForecastTest, ARunThatDoesNotClipOrSpeculateIgnoresTheClippedShare) {
  const MachineProfile machine = must(load_machine_profile("rtx-4090"));
  const auto plan = plan_of(StepMode::two_phase, PlacementPolicy::pinned);
  EXPECT_EQ(must(forecast(*plan, machine, {.clipped = 1})).step_s, must(forecast(*plan, machine)).step_s);
  const Status status = forecast(*plan, machine, {.clipped = 1.5}).status();
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_NE(status.message().find("1.5"), std::string::npos);
}

// A block computes the rows of its own experts, also if its operands have those of all.
TEST(ForecastTest, BlocksOfExpertsComputeAsLongAsAllAtOnce) {
  DecoderConfig config = test::tiny_of_family("gpt_oss");  // its experts have biases
  config.hidden = config.ffn = config.experts.ffn = 64;    // a matrix is a slice of a chunk
  MachineProfile machine = fast_machine();
  machine.device_bytes_per_s = 1e6;
  machine.gemm_sizes = {1, 64};
  machine.flops_f32 = {1e6, 64e6};
  const auto compute_s = [&](std::int64_t experts) {
    ProgramSet programs = tiny_programs(Recompute::none, 3, config);
    for (const ProgramRole role : {ProgramRole::eval, ProgramRole::train, ProgramRole::infer})
      programs[role] = split_experts(std::move(programs[role]), {.experts = experts});
    return must(forecast(*must(Engine::plan(programs, {})), machine)).lanes.compute;
  };
  EXPECT_NEAR(compute_s(1), compute_s(6), 0.01 * compute_s(6));
}

TEST(ForecastTest, IsDeterministic) {
  MachineProfile machine = must(load_machine_profile("rtx-4090"));
  const auto plan = plan_of(StepMode::two_phase, PlacementPolicy::nvme, 2);
  const Forecast a = must(forecast(*plan, machine)), b = must(forecast(*plan, machine));
  EXPECT_EQ(a.step_s, b.step_s);
  EXPECT_EQ(a.times.stalled_ns, b.times.stalled_ns);
}

TEST(ForecastTest, ThePeakIsThatOfThePlan) {
  const auto plan = plan_of(StepMode::two_phase, PlacementPolicy::nvme);
  EXPECT_EQ(must(forecast(*plan, must(load_machine_profile("h200")))).peak, plan->planned_peak);
}

TEST(ForecastTest, ARunThatDoesNotTrainHasNoForecast) {
  ProgramSet programs = tiny_programs();
  programs[ProgramRole::train] = {};
  const auto plan = must(Engine::plan(programs, {}));
  EXPECT_EQ(forecast(*plan, fast_machine()).status().code(), Code::unsupported);
}

}  // namespace
}  // namespace strata
