#pragma once

#include <cstdint>
#include <string>

#include <strata/engine/engine.h>

#include "train_config.h"

namespace strata::cli {

/// The most that a plan writes to the NVMe tier, retries aside.
struct PlannedWrites {
  std::uint64_t first_bytes = 0;  ///< the first values of what lives there
  std::uint64_t step_bytes = 0;
};
PlannedWrites planned_writes(const RunPlan& plan);

/// Keeps what is written to the NVMe tier within a budget. A step counts as the most that any has written so
/// far, and before three are done as what the plan says, since the first ones may leave their update to the
/// next. Beside the next step there is room for as much again, because saving may have to finish an update.
class WriteBudget {
 public:
  WriteBudget(std::uint64_t budget_bytes, std::uint64_t planned_step_bytes)
      : budget_bytes_(budget_bytes), step_bytes_(planned_step_bytes) {}

  static constexpr int kMeasured = 3;  ///< steps after which step_bytes() is measured
  /// All that was written, before the first step and after each.
  void begin(std::uint64_t written_bytes) { written_bytes_ = written_bytes; }
  void after_step(std::uint64_t written_bytes);

  bool is_limited() const noexcept { return budget_bytes_ != kUnlimitedBytes; }
  bool allows_a_step() const noexcept { return steps_left() > 0; }
  std::uint64_t steps_left() const noexcept;
  std::uint64_t step_bytes() const noexcept { return step_bytes_; }
  int steps() const noexcept { return steps_; }
  /// "1200 of 1500 bytes of io.write_budget are written, and a step writes up to 200".
  std::string to_string() const;

 private:
  std::uint64_t budget_bytes_, step_bytes_;
  std::uint64_t written_bytes_ = 0, most_bytes_ = 0;
  int steps_ = 0;
};

/// Errors: `does_not_fit` where the budget is not enough for a single step.
Status check_write_budget(const TrainConfig& config, const RunPlan& plan);
/// A line for the start of a run, or nothing where nothing is limited or written.
std::string write_budget_text(const TrainConfig& config, const RunPlan& plan);

}  // namespace strata::cli
