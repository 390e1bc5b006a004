#include <strata/session/state_planning.h>

#include <algorithm>

#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>
#include <strata/session/pinned_layout.h>

#include "plan/last_uses.h"

namespace strata {
namespace {

bool may_speculate(const StatePlan& plan) {
  const StepMode mode = plan.options.step_mode;
  return plan.trains() && mode != StepMode::serial && mode != StepMode::two_phase &&
         !exchanges_norms(plan.options);
}

// The pinned memory that the mode may use of what the placement leaves.
std::uint64_t undo_budget(const StatePlan& plan) {
  const SessionOptions& options = plan.options;
  if (!may_speculate(plan)) return 0;
  const std::uint64_t wanted =
      options.undo_bytes.value_or(options.step_mode == StepMode::automatic ? 0 : kUnlimited);
  const auto pinned = static_cast<std::size_t>(Tier::pinned);
  const std::uint64_t budget = options.budgets[pinned];
  const std::uint64_t taken = placement_bytes(plan.layout, plan.trace, plan.placement)[pinned];
  return budget == kUnlimited ? wanted : std::min(wanted, budget - std::min(budget, taken));
}

// Updates on the device have no transfers to hide.
bool is_off_device(const StatePlan& plan, ChunkId chunk) {
  return updated_state_bytes(plan, chunk, Tier::device) == 0;
}

// Updates can hide under the whole step: speculative ones under backward, those of two_phase under the next
// forward. So the fraction of bytes updated speculatively is backward's fraction of the flops.
double backward_flop_share(const UseTrace& uses) {
  const UseTrace::PassFlops flops = uses.pass_flops();
  return flops.backward <= 0 ? 1 : flops.backward / flops.all();
}

// Whether any part of the chunk could be updated speculatively.
bool is_candidate(const StatePlan& plan, const ChunkPosition& ready) {
  return ready.first >= 0 && is_off_device(plan, ready.second);
}

std::uint64_t unplaced_nvme(const StatePlan& plan) {
  const auto nvme = static_cast<std::size_t>(Tier::nvme);
  const std::uint64_t budget = plan.options.budgets[nvme];
  if (budget == kUnlimited) return budget;
  return budget - std::min(budget, placement_bytes(plan.layout, plan.trace, plan.placement)[nvme]);
}

// The share of the bytes of all candidates that backward has time to update and both budgets have room for.
double coverable_share(const StatePlan& plan, const UseTrace& uses, const std::vector<ChunkPosition>& trained,
                       std::uint64_t log_budget, std::uint64_t nvme_left) {
  std::uint64_t logged_by_all = 0, stored_by_all = 0;
  for (const ChunkPosition& ready : trained) {
    if (!is_candidate(plan, ready)) continue;
    logged_by_all += updated_state_bytes(plan, ready.second, Tier::pinned);
    stored_by_all += updated_state_bytes(plan, ready.second, Tier::nvme);
  }
  double share = backward_flop_share(uses);
  const auto limit = [&](std::uint64_t room, std::uint64_t all) {
    if (all > room) share = std::min(share, static_cast<double>(room) / static_cast<double>(all));
  };
  limit(log_budget, logged_by_all);
  limit(nvme_left, stored_by_all);
  return share;
}

// Reserves nvme extents for a second generation of the chunk's states that live there.
void reserve_second_generation(StatePlan& plan, ChunkId chunk) {
  for (const Payload payload : kPersistentPayloads)
    if (plan.placement.home({chunk, payload}) == Tier::nvme)
      ++plan.placement.classes[plan.placement.class_of(plan.layout, {chunk, payload})].snapshots;
}

}  // namespace

std::uint64_t undo_reserve(const StatePlan& plan, LastPasses last_passes) {
  if (!may_speculate(plan)) return 0;
  std::uint64_t params = 0, states = 0;
  for (ChunkId chunk = 0; chunk < plan.layout.n_chunks(); ++chunk) {
    if (!plan.layout.group_of(chunk).trainable) continue;
    params += plan.layout.payload_bytes(chunk, Payload::param);
    for (const Payload payload : kPersistentPayloads) states += plan.layout.payload_bytes(chunk, payload);
  }
  const auto speculative_bytes = [&](std::uint64_t bytes) {
    return static_cast<std::uint64_t>(static_cast<double>(bytes) * backward_flop_share(*last_passes.front()));
  };
  const std::optional<std::uint64_t>& asked = plan.options.undo_bytes;
  if (asked && *asked != kUnlimited) return std::min(*asked, speculative_bytes(states));
  return plan.options.step_mode == StepMode::automatic && !asked ? 0 : speculative_bytes(params);
}

namespace {

/// Chooses the chunks of one trainee after the other.
class UndoChoice {
 public:
  explicit UndoChoice(StatePlan& plan)
      : plan_(plan), log_budget_(undo_budget(plan)), nvme_left_(unplaced_nvme(plan)) {
    plan.undo.offset_of_chunk.resize(plan.layout.n_chunks());
  }

  // Covered chunks are spread evenly in the order in which chunks become ready: with two thirds of the chunks
  // covered, their updates keep pace with backward, and those of the rest with the next forward, which uses
  // chunks in the reverse order. If all the chunks that become ready last were left to the forward, it would
  // need them first, and without a gap.
  void add(const UseTrace& last_pass, std::int32_t trainee) {
    const std::vector<ChunkPosition> trained = detail::last_uses(last_pass, plan_.layout, trainee);
    n_trained_ += trained.size();
    if (log_budget_ == 0) return;
    const double share =
        coverable_share(plan_, last_pass, trained, log_budget_ - plan_.undo.bytes, nvme_left_);
    double seen = 0, covered = 0;
    for (const ChunkPosition& ready : trained) {
      if (!is_candidate(plan_, ready)) continue;
      const ChunkId chunk = ready.second;
      const std::uint64_t logged = updated_state_bytes(plan_, chunk, Tier::pinned),
                          stored = updated_state_bytes(plan_, chunk, Tier::nvme);
      const auto bytes = static_cast<double>(logged + stored);
      seen += bytes;
      if (covered + bytes / 2 > share * seen) continue;
      if (plan_.undo.bytes + logged > log_budget_ || stored > nvme_left_) continue;
      cover(chunk, logged, stored);
      covered += bytes;
    }
  }

  std::string note() const {
    std::string note = str("step: ", to_string(plan_.options.step_mode));
    if (log_budget_ > 0)
      note += str("; ", n_, " of ", plural(n_trained_, "chunk"),
                  " may be updated before the norm is known, undo log ", format_bytes(plan_.undo.bytes));
    return note;
  }

 private:
  void cover(ChunkId chunk, std::uint64_t logged, std::uint64_t stored) {
    plan_.undo.offset_of_chunk[chunk] = plan_.undo.bytes;
    plan_.undo.bytes += logged;
    reserve_second_generation(plan_, chunk);
    if (nvme_left_ != kUnlimited) nvme_left_ -= stored;
    ++n_;
  }

  StatePlan& plan_;
  const std::uint64_t log_budget_;
  std::uint64_t nvme_left_;
  std::size_t n_ = 0, n_trained_ = 0;
};

}  // namespace

void plan_undo_log(StatePlan& plan, LastPasses last_passes) {
  UndoChoice choice(plan);
  for (std::size_t t = 0; t < last_passes.size(); ++t)
    choice.add(*last_passes[t], static_cast<std::int32_t>(t));
  plan.trace.pinned_fixed_bytes += plan.undo.bytes;
  if (plan.trains()) plan.notes.push_back(choice.note());
}

}  // namespace strata
