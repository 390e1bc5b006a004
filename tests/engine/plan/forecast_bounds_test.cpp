#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include <strata/engine/forecast.h>
#include <strata/graph/ops.h>

#include "engine/tiny_run.h"

// Compares a simulated step to the lower bound that its lanes allow, over a grid of rates. The bounds:
//   serial       max(f C, u) + max((1-f) C, d, l) + max(A, S)
//   two_phase    max((1-f) C, d, l) + max(f C, u, A, S)
//   speculative  max(f C, u, A2, S2) + max((1-f) C, d, l + A1, S1)
// where C is the computation, f its forward fraction, u and d the copies up and down, l the accumulation of
// gradients, A the updates and S the slow tier; A1 and S1 are their speculative parts, and A2 and S2 the
// rest.

namespace strata {
namespace {

// Whether to test the whole grid, as bench/claims/simulator_bounds does, instead of its corners and middle.
bool asked_for_all() { return std::getenv("SIMULATOR_BOUNDS_ALL") != nullptr; }

struct Point {
  /// Approximate time of each lane per step, in seconds; disk 0: no slow tier.
  double compute = 1, link = 1, optimizer = 1, disk = 0;
};

struct BoundsFixture {
  BoundsFixture() {
    DecoderConfig config = test::tiny_config();
    config.layers = 48;
    config.hidden = 128;
    config.ffn = 512;
    config.heads = 2;
    config.vocab = 64;
    programs[ProgramRole::train] =
        test::tiny_programs(Recompute::none, 1, config, DType::bf16)[ProgramRole::train];
    for (const Instr& instr : programs[ProgramRole::train].code)
      flops += strata::flops(programs[ProgramRole::train], instr);
  }

  std::unique_ptr<const RunPlan> plan(StepMode mode, const Point& at) const {
    SessionOptions options;
    options.step_mode = mode;
    options.chunk_elems = 16 * ChunkLayout::kSliceAlign;
    options.prefetch = 6;
    options.gradients = GradientPolicy::pinned;
    options.policy = PlacementPolicy::pinned;
    options.paced_flops_per_s = flops / at.compute;
    if (at.disk > 0) options.budgets[1] = pinned_bytes;
    return must(Engine::plan(programs, options));
  }

  ProgramSet programs;
  double flops = 0;
  std::uint64_t pinned_bytes = 0;  ///< enough for parameters, gradients and windows
};

/// Minimum bytes that a step has to move: each once.
struct MinBytes {
  double params = 0, gradients = 0, states_on_disk = 0;
};
MinBytes min_bytes(const RunPlan& plan) {
  MinBytes minimum;
  for (ChunkId chunk = 0; chunk < plan.layout.n_chunks(); ++chunk) {
    minimum.params += static_cast<double>(plan.layout.payload_bytes(chunk, Payload::param));
    minimum.gradients += static_cast<double>(plan.layout.payload_bytes(chunk, Payload::accum));
    for (const Payload payload : kPersistentPayloads)
      if (plan.placement.home({chunk, payload}) == Tier::nvme)
        minimum.states_on_disk += static_cast<double>(plan.layout.payload_bytes(chunk, payload));
  }
  return minimum;
}

MachineProfile machine_of(const RunPlan& plan, const Point& at) {
  const MinBytes minimum = min_bytes(plan);
  double held = 0;
  for (const ChunkInfo& chunk : plan.layout.chunks()) held += static_cast<double>(chunk.n_elems);
  MachineProfile p;
  p.name = "grid";
  p.cores = 16;
  p.gemm_sizes = {1};
  p.flops_16bit = p.flops_f32 = {1e18};
  p.attention_flops_per_s = p.device_bytes_per_s = 1e18;
  p.h2d_bytes_per_s = p.d2h_bytes_per_s = minimum.gradients / at.link;
  p.link_bytes_per_s = 2 * p.h2d_bytes_per_s;
  // RAM slows nothing down, and accumulation takes little time.
  p.host_bytes_per_s = 100 * 26 * held / at.optimizer;
  p.update_s_per_param = {at.optimizer / held, at.optimizer / held, at.optimizer / held};
  const double disk = std::max(at.disk, 1e-9);
  p.read_bytes_per_s = p.write_bytes_per_s = std::max(minimum.states_on_disk, 1.0) / disk;
  p.disk_bytes_per_s = 2 * p.read_bytes_per_s;
  return p;
}

double bound_of(StepMode mode, const Point& at, const RunPlan& plan, const MachineProfile& machine,
                const Forecast& f) {
  const MinBytes minimum = min_bytes(plan);
  const UseTrace::PassFlops flops = plan.of(ProgramRole::train).uses.pass_flops();
  const double share = flops.forward / flops.all(), computing = f.lanes.compute;
  const double forward = share * computing, backward = computing - forward;
  const double accumulation = minimum.gradients / machine.host_bytes_per_s,
               update = f.lanes.cpu - accumulation;
  const double disk = minimum.states_on_disk / machine.read_bytes_per_s;
  const double up = minimum.params / machine.h2d_bytes_per_s,
               down = minimum.gradients / machine.d2h_bytes_per_s;
  const double s = f.speculated_share;
  if (mode == StepMode::serial)
    return std::max(forward, up) + std::max({backward, down, accumulation}) + std::max(update, disk);
  if (mode == StepMode::two_phase)
    return std::max({backward, down, accumulation}) + std::max({forward, up, update, disk});
  // The log makes speculative updates more expensive; the other updates cost as much as without it.
  const double speculative = update - (1 - s) * at.optimizer;
  return std::max({forward, up, update - speculative, (1 - s) * disk}) +
         std::max({backward, down, accumulation + speculative, s * disk});
}

TEST(ForecastBoundsTest, ASimulatedStepIsAtMostFivePercentAboveTheLowerBound) {
  BoundsFixture fixture;
  {
    const auto all_in_ram = fixture.plan(StepMode::two_phase, {});
    std::uint64_t moments = 0;
    for (ChunkId chunk = 0; chunk < all_in_ram->layout.n_chunks(); ++chunk)
      for (const Payload payload : {Payload::m, Payload::v, Payload::master})
        moments += all_in_ram->layout.payload_bytes(chunk, payload);
    fixture.pinned_bytes = all_in_ram->planned_peak[1] - moments * 3 / 4;
  }
  const std::vector<double> ratios =
      asked_for_all() ? std::vector<double>{0.25, 0.5, 1, 2, 4} : std::vector<double>{0.25, 1, 4};
  std::vector<Point> points;
  for (const double link : ratios)
    for (const double optimizer : ratios) {
      points.push_back({1, link, optimizer, 0});
      for (const double disk : ratios) points.push_back({1, link, optimizer, disk});
    }
  double worst = 0;
  std::string where;
  for (const StepMode mode : {StepMode::serial, StepMode::two_phase, StepMode::speculative})
    for (const Point& at : points) {
      const auto plan = fixture.plan(mode, at);
      const MachineProfile machine = machine_of(*plan, at);
      const Forecast f = must(forecast(*plan, machine));
      const double bound = bound_of(mode, at, *plan, machine, f), ratio = f.step_s / bound;
      if (std::getenv("SIMULATOR_BOUNDS_SHOW") != nullptr)
        std::printf(
            "%s link %.2f optimizer %.2f disk %.2f: %.4f s, bound %.4f, %.3f; compute %.3f up %.3f down %.3f "
            "cpu %.3f read %.3f write %.3f speculated %.2f\n",
            std::string(to_string(mode)).c_str(), at.link, at.optimizer, at.disk, f.step_s, bound, ratio,
            f.lanes.compute, f.lanes.h2d, f.lanes.d2h, f.lanes.cpu, f.lanes.nvme_read, f.lanes.nvme_write,
            f.speculated_share);
      if (ratio > worst) {
        worst = ratio;
        where = std::string(to_string(mode)) + " at link " + std::to_string(at.link) + ", optimizer " +
                std::to_string(at.optimizer) + ", disk " + std::to_string(at.disk);
      }
    }
  std::printf("worst %.4f over %zu points: %s\n", worst, 3 * points.size(), where.c_str());
  EXPECT_LE(worst, 1.05) << where;
}

}  // namespace
}  // namespace strata
