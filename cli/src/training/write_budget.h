#pragma once

#include <cstdint>
#include <string>

#include <strata/engine/engine.h>

#include "train_config.h"

namespace strata::cli {

/// What a plan makes new of what lives on the NVMe tier, every byte of which is written there at most once.
struct PlannedWrites {
  std::uint64_t home_bytes = 0;  ///< by the first values; also the most that is ever new and not yet written
  std::uint64_t step_bytes = 0;  ///< by each step
};
PlannedWrites planned_writes(const RunPlan& plan);

/// Keeps what is written to the NVMe tier within a budget, retries aside: a step is allowed where it and all
/// that is new in RAM by then, which saving may write, stay within it.
class WriteBudget {
 public:
  WriteBudget(std::uint64_t budget_bytes, PlannedWrites planned)
      : budget_bytes_(budget_bytes), planned_(planned) {}

  static constexpr std::uint64_t kMeasured = 3;  ///< steps after which steps_left() goes by what they wrote
  /// All that was written, before the first step and after each.
  void begin(std::uint64_t written_bytes) { first_bytes_ = written_bytes_ = written_bytes; }
  /// Whether going on in another plan, where every state is written anew, leaves room for a step.
  bool allows_replan(PlannedWrites planned) const noexcept {
    return budget_bytes_ == kUnlimitedBytes || planned.step_bytes == 0 ||
           all_written() + planned_.home_bytes + 2 * planned.home_bytes + planned.step_bytes <= budget_bytes_;
  }
  /// Has gone on in another plan, of a store that has written so much since it was made; those before it
  /// `earlier_bytes`.
  void begin_plan(PlannedWrites planned, std::uint64_t earlier_bytes, std::uint64_t written_bytes) {
    earlier_bytes_ = earlier_bytes;
    planned_ = planned;
    steps_ = 0;
    begin(written_bytes);
  }
  void after_step(std::uint64_t written_bytes) {
    written_bytes_ = written_bytes;
    ++steps_;
  }

  bool is_limited() const noexcept { return budget_bytes_ != kUnlimitedBytes && planned_.step_bytes > 0; }
  bool allows_step() const noexcept {
    return !is_limited() || all_written() + reserve_bytes() <= budget_bytes_;
  }
  double steps_left() const noexcept;  ///< about
  std::uint64_t steps() const noexcept { return steps_; }
  /// "1200 of 1500 bytes of io.write_budget are written, and a step and its checkpoint may write 400 more".
  std::string to_string() const;

 private:
  std::uint64_t reserve_bytes() const noexcept { return planned_.step_bytes + planned_.home_bytes; }
  std::uint64_t all_written() const noexcept { return earlier_bytes_ + written_bytes_; }
  std::uint64_t budget_bytes_;
  PlannedWrites planned_;
  std::uint64_t earlier_bytes_ = 0;  // in other plans
  std::uint64_t first_bytes_ = 0, written_bytes_ = 0, steps_ = 0;
};

/// Errors: `does_not_fit` where the budget is not enough for a single step.
Status check_write_budget(const TrainConfig& config, const RunPlan& plan);
/// A line for the start of a run, or nothing where nothing is limited or written.
std::string write_budget_text(const TrainConfig& config, const RunPlan& plan);

}  // namespace strata::cli
