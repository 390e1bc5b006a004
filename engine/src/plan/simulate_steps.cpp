#include "plan/simulate_steps.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include <strata/runtime/str.h>
#include <strata/runtime/units.h>
#include <strata/session/speculation_policy.h>

#include "execute/empty_steps.h"

namespace strata {
namespace detail {
namespace {

double clipped_share(const RunPlan& plan, const ForecastOptions& options) {
  return plan.options.clip > 0 ? options.clipped : 0;
}

// A rate of 0 means that the profile has no slow tier, so a plan that uses one has no forecast.
Status check_disk(const RunPlan& plan, const MachineProfile& profile) {
  const std::uint64_t bytes =
      placement_bytes(plan.layout, plan.trace, plan.placement)[static_cast<std::size_t>(Tier::nvme)];
  if (bytes == 0 || (profile.read_bytes_per_s > 0 && profile.write_bytes_per_s > 0)) return {};
  return Status::error(Code::unsupported,
                       str("the profile of ", profile.name, " has no slow tier, but the plan places ",
                           format_bytes(bytes), " on it"));
}

std::size_t count_trained_chunks(const ChunkLayout& layout) {
  std::size_t trained = 0;
  for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk)
    trained += layout.group_of(chunk).trainable ? 1 : 0;
  return trained;
}

// Simulates steps until the steady state, and returns the means of those that count.
Result<Forecast> run_steps(Engine& engine, Simulation& machine, const SimulatedSteps& steps,
                           const ForecastOptions& options) {
  constexpr int kTraced = 2;
  EmptyBatchSource batches;
  StepReport report;
  for (int step = 0; step < steps.warm; ++step) STRATA_TRY(run_empty_steps(engine, report));
  Forecast out;
  const MovedBytes moved = engine.moved();
  const LaneBusySeconds lanes = engine.lane_busy_seconds();
  std::int64_t speculated = 0;
  for (int step = 0; step < steps.counted; ++step) {
    if (step == steps.counted - kTraced && options.trace != nullptr)
      machine.set_trace(*options.trace, options.track_prefix);
    STRATA_TRY(run_empty_steps(engine, report));
    out.step_s += report.seconds / steps.counted;
    out.times += report.times;
    speculated += report.speculated;
  }
  out.moved = (engine.moved() - moved) / static_cast<std::uint64_t>(steps.counted);
  out.lanes = (engine.lane_busy_seconds() - lanes) / steps.counted;
  out.times.computing_ns /= steps.counted;
  for (std::int64_t& ns : out.times.stalled_ns) ns /= steps.counted;
  if (const std::size_t trained = count_trained_chunks(engine.plan().layout); trained > 0)
    out.speculated_share = static_cast<double>(speculated) / (static_cast<double>(trained) * steps.counted);
  if (!engine.plan().of(ProgramRole::refresh).empty()) {
    const std::int64_t begin = machine.clock().now_ns();
    STRATA_TRY(
        engine.refresh(batches, [](const StatePiece&, std::span<const float>) { return Status::ok(); }));
    out.refresh_s = static_cast<double>(machine.clock().now_ns() - begin) * 1e-9;
  }
  out.peak = engine.peak_bytes();
  return out;
}

}  // namespace

SimulatedSteps simulated_steps(const RunPlan& plan, const ForecastOptions& options) {
  constexpr int kPipeline = 3, kRemembered = 32;
  const double clipped = clipped_share(plan, options);
  const bool speculates = plan.undo.covers_any() && plan.options.step_mode != StepMode::serial;
  // What passes from a step to the next matters little where a step is long.
  constexpr std::size_t kLongStep = 32768;
  const bool is_long = options.trace == nullptr && plan.of(ProgramRole::train).code.size() > kLongStep;
  SimulatedSteps steps = is_long ? SimulatedSteps{2, 1} : SimulatedSteps{kPipeline, 2};
  // Mode auto first times steps of both kinds.
  if (speculates && plan.options.step_mode == StepMode::automatic)
    steps.warm += SpeculationPolicy::kFirstTrials * SpeculationPolicy::kTrialSteps + 1;
  if (speculates && clipped > 0 && clipped < 1) {
    steps.warm += kRemembered;
    // Include at least two steps of the rarer kind, within a limit on simulation time.
    constexpr double kMaxSteps = 100;
    const double rarer = std::min(clipped, 1 - clipped);
    steps.counted = static_cast<int>(std::clamp(std::ceil(2 / rarer), 10.0, kMaxSteps));
  }
  return steps;
}

Status check_forecast(const RunPlan& plan, const MachineProfile& profile, const ForecastOptions& options) {
  if (!plan.trains())
    return Status::error(Code::unsupported, "a run that does not train has no step to forecast");
  if (!(options.clipped >= 0 && options.clipped <= 1))
    return Status::error(
        Code::invalid, str("the fraction of clipped steps is ", options.clipped, "; it must be from 0 to 1"));
  return check_disk(plan, profile);
}

Result<Forecast> simulate_steps(const RunPlan& plan, const MachineProfile& of_rank, Simulation& machine,
                                const ForecastOptions& options, const SimulatedSteps& steps,
                                const SimulatedPeers* peers) {
  STRATA_TRY_ASSIGN(const std::unique_ptr<ThreadPool> pool, ThreadPool::create(1));
  const Engine::Dataless dataless{.steps = {.clipped = clipped_share(plan, options)},
                                  .simulation = &machine,
                                  .profile = &of_rank,
                                  .peers = peers};
  const Engine::Environment environment{.backend = machine.backend(),
                                        .pool = *pool,
                                        .clock = machine.clock(),
                                        .io = posix_io(),
                                        .dataless = &dataless};
  STRATA_TRY_ASSIGN(const std::unique_ptr<Engine> engine, Engine::create(plan, environment));
  STRATA_TRY(engine->initialize(0));
  return run_steps(*engine, machine, steps, options);
}

}  // namespace detail

Result<Forecast> forecast(const RunPlan& plan, const MachineProfile& profile,
                          const ForecastOptions& options) {
  STRATA_TRY(detail::check_forecast(plan, profile, options));
  const MachineProfile of_rank = profile.shared_by(plan.options.ranks.on_machine);
  const std::unique_ptr<Simulation> machine = Simulation::create(of_rank.simulation());
  return detail::simulate_steps(plan, of_rank, *machine, options, detail::simulated_steps(plan, options));
}

}  // namespace strata
