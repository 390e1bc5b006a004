#include <strata/plan/write_budget.h>

#include <algorithm>

#include <fmt/format.h>

#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

namespace strata {
namespace {

std::string exactly(std::uint64_t bytes) { return str(bytes, " bytes (", format_bytes(bytes), ")"); }

}  // namespace

// An update writes every state once, or twice if it is speculative and rolled back. Gradients, their sums and
// activations are written in every micro-batch.
PlannedWrites planned_writes(const RunPlan& plan) {
  PlannedWrites writes;
  const auto passes = static_cast<std::uint64_t>(plan.passes());
  for (ChunkId chunk = 0; chunk < plan.layout.n_chunks(); ++chunk)
    for (std::size_t p = 0; p < kPayloads; ++p) {
      const auto payload = static_cast<Payload>(p);
      if (plan.placement.homes[chunk][p] != Tier::nvme) continue;
      const std::uint64_t bytes = plan.layout.payload_bytes(chunk, payload);
      const bool is_state = payload != Payload::accum && payload != Payload::grad;
      writes.home_bytes += bytes;
      const std::uint64_t times = !is_state ? passes : plan.undo.covers(chunk) ? 2 : 1;
      writes.step_bytes += times * bytes;
    }
  for (const LoweredProgram::Offload::Stored& stored : plan.of(ProgramRole::train).offload.stored)
    writes.step_bytes += passes * stored.slot_bytes;
  return writes;
}

double WriteBudget::steps_left() const noexcept {
  const double step = steps_ < kMeasured
                          ? static_cast<double>(planned_.step_bytes)
                          : static_cast<double>(written_bytes_ - first_bytes_) / static_cast<double>(steps_);
  const double left = static_cast<double>(budget_bytes_) - static_cast<double>(all_written()) -
                      static_cast<double>(planned_.home_bytes);
  return std::max(0.0, left / std::max(1.0, step));
}

std::string WriteBudget::to_string() const {
  return str(all_written(), " of ", budget_bytes_,
             " bytes of io.write_budget are written; a step and its checkpoint may write ", reserve_bytes(),
             " more");
}

Status check_write_budget(std::uint64_t budget_bytes, const RunPlan& plan) {
  const PlannedWrites planned = planned_writes(plan);
  WriteBudget budget(budget_bytes, planned);
  budget.begin(planned.home_bytes);
  if (budget.allows_step()) return Status::ok();
  return Status::error(Code::does_not_fit,
                       str("io.write_budget is ", exactly(budget_bytes),
                           ", but initialization, one step and its checkpoint may write ",
                           exactly(2 * planned.home_bytes + planned.step_bytes), " to the NVMe tier"));
}

std::string write_budget_text(std::uint64_t budget_bytes, const RunPlan& plan) {
  const PlannedWrites planned = planned_writes(plan);
  WriteBudget budget(budget_bytes, planned);
  if (!budget.is_limited()) return "";
  budget.begin(planned.home_bytes);
  return fmt::format(
      "writes   about {} per step to the nvme tier: io.write_budget = {} is enough for about {:.0f} steps\n",
      format_bytes(planned.step_bytes), format_bytes(budget_bytes), budget.steps_left());
}

}  // namespace strata
