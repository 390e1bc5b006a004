#include "undo_plan.h"

#include <algorithm>

#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

#include "machine.h"
#include "schedule.h"

namespace strata {
namespace {

bool may_speculate(const RunPlan& plan) {
  const StepMode mode = plan.options.step_mode;
  return plan.trains() && mode != StepMode::serial && mode != StepMode::two_phase;
}

// What the mode may use of the pinned memory that the placement leaves.
std::uint64_t undo_budget(const RunPlan& plan) {
  const EngineOptions& options = plan.options;
  if (!may_speculate(plan)) return 0;
  const std::uint64_t wanted =
      options.undo_bytes.value_or(options.step_mode == StepMode::automatic ? 0 : kUnlimited);
  const auto pinned = static_cast<std::size_t>(Tier::pinned);
  const std::uint64_t budget = options.budgets[pinned];
  const std::uint64_t taken = placement_bytes(plan.layout, plan.trace, plan.placement)[pinned];
  return budget == kUnlimited ? wanted : std::min(wanted, budget - std::min(budget, taken));
}

// On the device nothing has to be hidden.
bool is_off_device(const RunPlan& plan, ChunkId chunk) { return step_bytes(plan, chunk, Tier::device) == 0; }

std::uint64_t updated_bytes(const RunPlan& plan, ChunkId chunk) {
  return step_bytes(plan, chunk, Tier::pinned) + step_bytes(plan, chunk, Tier::nvme);
}

// Updates have all of a step to hide under: backward for those made on trust, the next forward for those of
// two_phase. So the bytes that are updated on trust are to all as the flops of backward are to all.
double share_of_backward(const RunPlan& plan) {
  double forward = 0, backward = 0;
  bool in_backward = false;
  for (const LoweredInstr& instr : plan.train.code) {
    in_backward = in_backward || !instr.grads.empty();
    (in_backward ? backward : forward) += instr.flops;
  }
  return backward <= 0 ? 1 : backward / (forward + backward);
}

std::uint64_t bytes_on_trust(const RunPlan& plan) {
  std::uint64_t bytes = 0;
  for (ChunkId chunk = 0; chunk < plan.layout.n_chunks(); ++chunk)
    if (plan.layout.group_of(chunk).trainable) bytes += updated_bytes(plan, chunk);
  return static_cast<std::uint64_t>(static_cast<double>(bytes) * share_of_backward(plan));
}

// Room on nvme for a second generation of what `chunk` has there.
void keep_generations(RunPlan& plan, ChunkId chunk) {
  for (const Payload payload : kStepPayloads)
    if (plan.placement.home({chunk, payload}) == Tier::nvme)
      ++plan.placement.classes[plan.placement.class_of(plan.layout, {chunk, payload})].kept;
}

}  // namespace

std::uint64_t undo_reserve(const RunPlan& plan) {
  if (!may_speculate(plan)) return 0;
  std::uint64_t params = 0, states = 0;
  for (ChunkId chunk = 0; chunk < plan.layout.n_chunks(); ++chunk) {
    if (!plan.layout.group_of(chunk).trainable) continue;
    params += plan.layout.payload_bytes(chunk, Payload::param);
    for (const Payload payload : kStepPayloads) states += plan.layout.payload_bytes(chunk, payload);
  }
  const auto on_trust = [&](std::uint64_t bytes) {
    return static_cast<std::uint64_t>(static_cast<double>(bytes) * share_of_backward(plan));
  };
  if (plan.options.undo_bytes) return std::min(*plan.options.undo_bytes, on_trust(states));
  return plan.options.step_mode == StepMode::automatic ? 0 : on_trust(params);
}

// The chunks that are ready first: the more of backward is left, the more of it hides their update.
void plan_undo(RunPlan& plan) {
  const std::uint64_t log_budget = undo_budget(plan);
  const auto nvme = static_cast<std::size_t>(Tier::nvme);
  std::uint64_t nvme_left = plan.options.budgets[nvme];
  if (nvme_left != kUnlimited)
    nvme_left -= std::min(nvme_left, placement_bytes(plan.layout, plan.trace, plan.placement)[nvme]);
  std::uint64_t left = log_budget > 0 ? bytes_on_trust(plan) : 0;
  plan.undo.offset_of_chunk.resize(plan.layout.n_chunks());
  std::size_t n = 0;
  const std::vector<ChunkAt> trained = last_touches(plan.train, plan.layout);
  for (const auto& [position, chunk] : trained) {
    const std::uint64_t logged = step_bytes(plan, chunk, Tier::pinned),
                        stored = step_bytes(plan, chunk, Tier::nvme);
    if (position < 0 || left == 0 || !is_off_device(plan, chunk)) continue;
    if (plan.undo.bytes + logged > log_budget || stored > nvme_left) continue;
    plan.undo.offset_of_chunk[chunk] = plan.undo.bytes;
    plan.undo.bytes += logged;
    keep_generations(plan, chunk);
    if (nvme_left != kUnlimited) nvme_left -= stored;
    left -= std::min(left, updated_bytes(plan, chunk));
    ++n;
  }
  plan.trace.pinned_fixed_bytes += plan.undo.bytes;
  if (!plan.trains()) return;
  std::string note = str("step: ", to_string(plan.options.step_mode));
  if (log_budget > 0)
    note += str("; ", n, " of ", trained.size(), " chunks may be updated before the norm is known, undo log ",
                format_bytes(plan.undo.bytes));
  plan.notes.push_back(std::move(note));
}

}  // namespace strata
