#include "execute/program_memory.h"

#include <algorithm>

#include <strata/runtime/units.h>

#include "execute/activation_slots.h"
#include "execute/sequences/state_rows.h"

namespace strata::detail {
namespace {

// Sizes in bytes of the parts of the driver's pinned memory, in this order.
struct PinnedParts {
  std::size_t input_slot = 0;  // one of two
  std::size_t losses = 0;
  std::size_t outputs = 0;      // all of a pass that is not one of a step, or of all passes of one
  std::size_t logits = 0;       // one row, or the maximum that a program with a KV cache computes
  std::size_t activations = 0;  // offloaded from the device
  std::size_t results = 0;      // all of a program
  std::size_t total() const noexcept {
    return 2 * input_slot + losses + outputs + logits + activations + results;
  }
};

// Losses and other outputs of a step, for each micro-batch.
void add_step(const RunPlan& plan, const PlannedStep& step, PinnedParts& parts) {
  std::size_t outputs = 0;
  for (const PlannedStep::Part& part : step.parts) {
    const LoweredProgram& program = plan.programs[part.program].program;
    outputs += static_cast<std::size_t>(part.passes) * program.output_bytes;
  }
  parts.outputs = std::max(parts.outputs, outputs);
  parts.losses = std::max(parts.losses, static_cast<std::size_t>(step.micro_batches()) * sizeof(float));
}

PinnedParts pinned_parts(const RunPlan& plan) {
  PinnedParts parts;
  std::size_t inputs = 0;
  std::int64_t logit_values = 1;
  for (const PlannedProgram& planned : plan.programs) {
    const LoweredProgram& program = planned.program;
    inputs = std::max(inputs, program.input_bytes);
    parts.activations = std::max(parts.activations, program.offload.host_bytes);
    parts.results = std::max(parts.results, program.result_bytes);
    parts.outputs = std::max(parts.outputs, program.output_bytes);
    const Operand logits = program.find("logits");
    if (logits.location == Operand::Location::none) continue;
    logit_values =
        std::max(logit_values, program.state_bytes > 0 ? logits.shape.n_elems() : logits.shape.dim(-1));
  }
  parts.input_slot = round_up(inputs, kPageBytes);
  for (const PlannedStep& step : plan.steps) add_step(plan, step, parts);
  const auto at_least = static_cast<std::size_t>(std::max(plan.options.grad_accum, 1)) * sizeof(float);
  parts.losses = round_up(std::max(parts.losses, at_least), kPageBytes);
  parts.outputs = round_up(parts.outputs, kPageBytes);
  parts.logits = round_up(static_cast<std::size_t>(logit_values) * sizeof(float), kPageBytes);
  return parts;
}

// The programs that run while sequences are continued share memory: their activations, and behind these the
// cache and the snapshots of its states.
bool keeps_cache(ProgramRole role) noexcept {
  return role == ProgramRole::prefill || role == ProgramRole::decode || role == ProgramRole::infer;
}
struct CachedMemory {
  std::size_t arena = 0, states = 0, snapshots = 0;
  std::size_t end() const noexcept { return arena + states + snapshots; }
};
CachedMemory cached_memory(const RunPlan& plan) {
  CachedMemory cached;
  for (const PlannedProgram& planned : plan.programs) {
    if (!keeps_cache(planned.role)) continue;
    cached.arena = std::max(cached.arena, planned.program.arena_bytes);
    cached.states = std::max(cached.states, planned.program.state_bytes);
  }
  cached.snapshots = round_up(snapshot_bytes(plan), kPageBytes);
  return cached;
}

}  // namespace

bool overwrites_cache(const RunPlan& plan, const PlannedProgram& planned) noexcept {
  return !keeps_cache(planned.role) && planned.program.arena_bytes > cached_memory(plan).arena;
}

DriverMemory plan_driver_memory(const RunPlan& plan) {
  DriverMemory driver;
  for (const PlannedProgram& planned : plan.programs)
    driver.arena = std::max(driver.arena, planned.program.arena_bytes);
  const std::size_t cache_end = cached_memory(plan).end();
  driver.device_states = cache_end - std::min(driver.arena, cache_end);
  driver.pinned = pinned_parts(plan).total();
  driver.nvme_slots = activation_slots(plan.of(ProgramRole::train)).classes;
  return driver;
}

ProgramMemory::ProgramMemory(const RunPlan& plan, const RunMemory& memory) {
  const PinnedParts parts = pinned_parts(plan);
  input_slot_bytes_ = parts.input_slot;
  arena_ = memory.arena().data;
  const CachedMemory cached = cached_memory(plan);
  states_ = arena_ + cached.arena;
  snapshots_ = states_ + cached.states;
  inputs_ = memory.driver_pinned().data;
  std::byte* const losses = inputs_ + 2 * parts.input_slot;
  losses_ = reinterpret_cast<float*>(losses);
  outputs_ = losses + parts.losses;
  logits_ = reinterpret_cast<float*>(outputs_ + parts.outputs);
  activations_ = outputs_ + parts.outputs + parts.logits;
  results_ = activations_ + parts.activations;
}

}  // namespace strata::detail
