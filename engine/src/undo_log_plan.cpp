#include "undo_log_plan.h"

#include <algorithm>

#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

#include "execution_context.h"
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
bool is_off_device(const RunPlan& plan, ChunkId chunk) {
  return updated_state_bytes(plan, chunk, Tier::device) == 0;
}

// Updates have all of a step to hide under: backward for those made speculatively, the next forward for those
// of two_phase. So the bytes that are updated speculatively are to all as the flops of backward are to all.
double backward_flop_share(const RunPlan& plan) {
  const LoweredProgram::PassFlops flops = plan.train.pass_flops();
  return flops.backward <= 0 ? 1 : flops.backward / flops.all();
}

// Whether anything of it could be updated speculatively.
bool is_candidate(const RunPlan& plan, const ChunkPosition& ready) {
  return ready.first >= 0 && is_off_device(plan, ready.second);
}

// Room on nvme for a second generation of what `chunk` has there.
void reserve_second_generation(RunPlan& plan, ChunkId chunk) {
  for (const Payload payload : kPersistentPayloads)
    if (plan.placement.home({chunk, payload}) == Tier::nvme)
      ++plan.placement.classes[plan.placement.class_of(plan.layout, {chunk, payload})].snapshots;
}

}  // namespace

std::uint64_t undo_reserve(const RunPlan& plan) {
  if (!may_speculate(plan)) return 0;
  std::uint64_t params = 0, states = 0;
  for (ChunkId chunk = 0; chunk < plan.layout.n_chunks(); ++chunk) {
    if (!plan.layout.group_of(chunk).trainable) continue;
    params += plan.layout.payload_bytes(chunk, Payload::param);
    for (const Payload payload : kPersistentPayloads) states += plan.layout.payload_bytes(chunk, payload);
  }
  const auto speculative_bytes = [&](std::uint64_t bytes) {
    return static_cast<std::uint64_t>(static_cast<double>(bytes) * backward_flop_share(plan));
  };
  const std::optional<std::uint64_t>& asked = plan.options.undo_bytes;
  if (asked && *asked != kUnlimited) return std::min(*asked, speculative_bytes(states));
  return plan.options.step_mode == StepMode::automatic && !asked ? 0 : speculative_bytes(params);
}

// Evenly among the chunks as they become ready: in backward the updates of two thirds keep pace with it, and
// in the next forward, in the same order turned around, those of the others. Were the chunks that are ready
// last all left to forward, it would come to them one after the other at once.
void plan_undo_log(RunPlan& plan) {
  const std::uint64_t log_budget = undo_budget(plan);
  const auto nvme = static_cast<std::size_t>(Tier::nvme);
  std::uint64_t nvme_left = plan.options.budgets[nvme];
  if (nvme_left != kUnlimited)
    nvme_left -= std::min(nvme_left, placement_bytes(plan.layout, plan.trace, plan.placement)[nvme]);
  const std::vector<ChunkPosition> trained = last_uses(plan.train, plan.layout);
  std::uint64_t logged_by_all = 0, stored_by_all = 0;
  for (const ChunkPosition& ready : trained) {
    if (!is_candidate(plan, ready)) continue;
    logged_by_all += updated_state_bytes(plan, ready.second, Tier::pinned);
    stored_by_all += updated_state_bytes(plan, ready.second, Tier::nvme);
  }
  double share = log_budget > 0 ? backward_flop_share(plan) : 0;
  const auto limit = [&](std::uint64_t room, std::uint64_t all) {
    if (all > room) share = std::min(share, static_cast<double>(room) / static_cast<double>(all));
  };
  limit(log_budget, logged_by_all);
  limit(nvme_left, stored_by_all);
  plan.undo.offset_of_chunk.resize(plan.layout.n_chunks());
  std::size_t n = 0;
  double seen = 0, covered = 0;
  for (const ChunkPosition& ready : trained) {
    if (!is_candidate(plan, ready)) continue;
    const ChunkId chunk = ready.second;
    const std::uint64_t logged = updated_state_bytes(plan, chunk, Tier::pinned),
                        stored = updated_state_bytes(plan, chunk, Tier::nvme);
    const auto bytes = static_cast<double>(logged + stored);
    seen += bytes;
    if (covered + bytes / 2 > share * seen) continue;
    if (plan.undo.bytes + logged > log_budget || stored > nvme_left) continue;
    plan.undo.offset_of_chunk[chunk] = plan.undo.bytes;
    plan.undo.bytes += logged;
    reserve_second_generation(plan, chunk);
    if (nvme_left != kUnlimited) nvme_left -= stored;
    covered += bytes;
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
