#include <strata/engine/forecast.h>

#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

#include "mode_choice.h"
#include "no_batches.h"

namespace strata {
namespace {

// A mode that times both kinds of steps does that first.
int warm_steps(const RunPlan& plan) {
  constexpr int kPipeline = 3;
  const bool tries = plan.options.step_mode == StepMode::automatic && plan.undo.covers_any();
  return (tries ? 2 * ModeChoice::kTrial + 1 : 0) + kPipeline;
}

// A rate of 0 is no time at all: a slow tier that is not known has no forecast.
Status check_disk(const RunPlan& plan, const MachineProfile& profile) {
  const std::uint64_t bytes =
      placement_bytes(plan.layout, plan.trace, plan.placement)[static_cast<std::size_t>(Tier::nvme)];
  if (bytes == 0 || (profile.read_bytes_per_s > 0 && profile.write_bytes_per_s > 0)) return {};
  return Status::error(Code::unsupported,
                       str("the profile of ", profile.name, " knows no slow tier, and the plan has ",
                           format_bytes(bytes), " there"));
}

}  // namespace

Result<Forecast> forecast(const RunPlan& plan, const MachineProfile& profile, Trace* trace) {
  if (!plan.trains())
    return Status::error(Code::unsupported, "a run that does not train has no step to forecast");
  STRATA_TRY(check_disk(plan, profile));
  constexpr int kCounted = 2;
  const std::unique_ptr<Simulation> machine = Simulation::create(profile.simulation());
  STRATA_TRY_ASSIGN(const std::unique_ptr<ThreadPool> pool, ThreadPool::create(1));
  Engine::Environment environment{machine->backend(), *pool, machine->clock(), posix_io()};
  const Engine::Environment::Simulated simulated{*machine, profile};
  environment.simulated = &simulated;
  STRATA_TRY_ASSIGN(const std::unique_ptr<Engine> engine, Engine::create(plan, environment));
  STRATA_TRY(engine->initialize(0));
  NoBatches batches;
  StepReport report;
  const int warm = warm_steps(plan);
  for (int step = 0; step < warm; ++step) STRATA_TRY(engine->train_step(batches, 1e-3, report));
  if (trace != nullptr) machine->record_into(*trace);
  Forecast out;
  const MovedBytes moved = engine->moved();
  const LaneSeconds lanes = engine->lane_seconds();
  for (int step = 0; step < kCounted; ++step) {
    STRATA_TRY(engine->train_step(batches, 1e-3, report));
    out.step_s += report.seconds / kCounted;
    out.times += report.times;
  }
  const MovedBytes all = engine->moved() - moved;
  out.moved = {all.h2d / kCounted, all.d2h / kCounted, all.nvme_read / kCounted, all.nvme_write / kCounted};
  out.lanes = (engine->lane_seconds() - lanes) / kCounted;
  out.times.computing_ns /= kCounted;
  for (std::int64_t& ns : out.times.stalled_ns) ns /= kCounted;
  std::size_t trained = 0;
  for (ChunkId chunk = 0; chunk < plan.layout.n_chunks(); ++chunk)
    trained += plan.layout.group_of(chunk).trainable ? 1 : 0;
  if (trained > 0)
    out.speculated_share = static_cast<double>(report.speculated) / static_cast<double>(trained);
  out.peak = engine->peak_bytes();
  return out;
}

}  // namespace strata
