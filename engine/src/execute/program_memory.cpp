#include "execute/program_memory.h"

#include <algorithm>

#include <strata/runtime/units.h>

#include "execute/activation_slots.h"

namespace strata::detail {
namespace {

// Sizes in bytes of the parts of the driver's pinned memory, in this order.
struct PinnedParts {
  std::size_t input_slot = 0;  // one of two
  std::size_t losses = 0;
  std::size_t logits = 0;       // one row, or the maximum that a program with a KV cache computes
  std::size_t activations = 0;  // offloaded from the device
  std::size_t results = 0;      // all of a program
  std::size_t total() const noexcept { return 2 * input_slot + losses + logits + activations + results; }
};

PinnedParts pinned_parts(const RunPlan& plan) {
  PinnedParts parts;
  std::size_t inputs = 0;
  std::int64_t logit_values = 1;
  for (const PlannedProgram& planned : plan.programs) {
    const LoweredProgram& program = planned.program;
    inputs = std::max(inputs, program.input_bytes);
    parts.activations = std::max(parts.activations, program.offload.host_bytes);
    parts.results = std::max(parts.results, program.result_bytes);
    const Operand logits = program.find("logits");
    if (logits.location == Operand::Location::none) continue;
    logit_values =
        std::max(logit_values, program.state_bytes > 0 ? logits.shape.n_elems() : logits.shape.dim(-1));
  }
  parts.input_slot = round_up(inputs, kPageBytes);
  parts.losses =
      round_up(static_cast<std::size_t>(std::max(plan.options.grad_accum, 1)) * sizeof(float), kPageBytes);
  parts.logits = round_up(static_cast<std::size_t>(logit_values) * sizeof(float), kPageBytes);
  return parts;
}

}  // namespace

DriverMemory plan_driver_memory(const RunPlan& plan) {
  DriverMemory driver;
  for (const PlannedProgram& planned : plan.programs) {
    driver.arena = std::max(driver.arena, planned.program.arena_bytes);
    driver.device_states = std::max(driver.device_states, planned.program.state_bytes);
  }
  driver.pinned = pinned_parts(plan).total();
  driver.nvme_slots = activation_slots(plan.of(ProgramRole::train)).classes;
  return driver;
}

ProgramMemory::ProgramMemory(const RunPlan& plan, const RunMemory& memory) {
  const PinnedParts parts = pinned_parts(plan);
  input_slot_bytes_ = parts.input_slot;
  arena_ = memory.arena().data;
  states_ = memory.device_states().data;
  inputs_ = memory.driver_pinned().data;
  std::byte* const losses = inputs_ + 2 * parts.input_slot;
  losses_ = reinterpret_cast<float*>(losses);
  logits_ = reinterpret_cast<float*>(losses + parts.losses);
  activations_ = losses + parts.losses + parts.logits;
  results_ = activations_ + parts.activations;
}

}  // namespace strata::detail
