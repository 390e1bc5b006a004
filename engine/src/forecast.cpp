#include <strata/engine/forecast.h>

#include "no_batches.h"

namespace strata {
namespace {

MovedBytes operator-(const MovedBytes& a, const MovedBytes& b) {
  return {a.h2d - b.h2d, a.d2h - b.d2h, a.nvme_read - b.nvme_read, a.nvme_write - b.nvme_write};
}

// A mode that times others before it settles needs so many steps.
int warm_steps(const RunPlan& plan) {
  constexpr int kPipeline = 3, kSettling = 16;
  return plan.options.step_mode == StepMode::automatic && plan.undo.covers_any() ? kSettling : kPipeline;
}

}  // namespace

Result<Forecast> forecast(const RunPlan& plan, const MachineProfile& profile, Trace* trace) {
  if (!plan.trains())
    return Status::error(Code::unsupported, "a run that does not train has no step to forecast");
  constexpr int kCounted = 2;
  const std::unique_ptr<Simulation> machine = Simulation::create(profile.simulation());
  STRATA_TRY_ASSIGN(const std::unique_ptr<ThreadPool> pool, ThreadPool::create(1));
  Engine::Environment environment{machine->backend(), *pool, machine->clock(), posix_io()};
  environment.simulation = machine.get();
  environment.profile = &profile;
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
  const LaneSeconds now = engine->lane_seconds();
  const auto a_step = [](double after, double before) { return (after - before) / kCounted; };
  out.lanes = {a_step(now.compute, lanes.compute),
               a_step(now.h2d, lanes.h2d),
               a_step(now.d2h, lanes.d2h),
               a_step(now.cpu, lanes.cpu),
               a_step(now.nvme_read, lanes.nvme_read),
               a_step(now.nvme_write, lanes.nvme_write)};
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
