#include "training/write_budget.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

namespace strata::cli {
namespace {

std::string exactly(std::uint64_t bytes) { return str(bytes, " bytes (", format_bytes(bytes), ")"); }

}  // namespace

// Every payload that lives there may be written once by the update; what gradients are summed in, once a
// micro-batch.
PlannedWrites planned_writes(const RunPlan& plan) {
  PlannedWrites writes;
  for (ChunkId chunk = 0; chunk < plan.layout.n_chunks(); ++chunk)
    for (std::size_t p = 0; p < kPayloads; ++p) {
      const auto payload = static_cast<Payload>(p);
      if (plan.placement.homes[chunk][p] != Tier::nvme) continue;
      const std::uint64_t bytes = plan.layout.payload_bytes(chunk, payload);
      const bool is_state = payload != Payload::accum && payload != Payload::grad;
      if (is_state) writes.first_bytes += bytes;
      writes.step_bytes += is_state ? bytes : bytes * static_cast<std::uint64_t>(plan.options.grad_accum);
    }
  return writes;
}

void WriteBudget::after_step(std::uint64_t written_bytes) {
  most_bytes_ = std::max(most_bytes_, written_bytes - written_bytes_);
  written_bytes_ = written_bytes;
  if (++steps_ >= kMeasured) step_bytes_ = most_bytes_;
}

std::uint64_t WriteBudget::steps_left() const noexcept {
  if (!is_limited() || step_bytes_ == 0) return std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t kept = written_bytes_ + step_bytes_;
  return budget_bytes_ < kept ? 0 : (budget_bytes_ - kept) / step_bytes_;
}

std::string WriteBudget::to_string() const {
  return str(written_bytes_, " of ", budget_bytes_,
             " bytes of io.write_budget are written, and a step writes up to ", step_bytes_);
}

Status check_write_budget(const TrainConfig& config, const RunPlan& plan) {
  const PlannedWrites writes = planned_writes(plan);
  WriteBudget budget(config.io.write_budget_bytes, writes.step_bytes);
  budget.begin(writes.first_bytes);
  if (budget.allows_a_step()) return Status::ok();
  return Status::error(Code::does_not_fit,
                       str("io.write_budget is ", exactly(config.io.write_budget_bytes),
                           "; the first values, one step and a checkpoint after it may write ",
                           exactly(writes.first_bytes + 2 * writes.step_bytes), " to the NVMe tier"));
}

std::string write_budget_text(const TrainConfig& config, const RunPlan& plan) {
  const PlannedWrites writes = planned_writes(plan);
  WriteBudget budget(config.io.write_budget_bytes, writes.step_bytes);
  budget.begin(writes.first_bytes);
  if (!budget.is_limited() || writes.step_bytes == 0) return "";
  return fmt::format(
      "writes   up to {} a step to the nvme tier: io.write_budget = {} is good for {} steps or more\n",
      format_bytes(writes.step_bytes), format_bytes(config.io.write_budget_bytes), budget.steps_left());
}

}  // namespace strata::cli
