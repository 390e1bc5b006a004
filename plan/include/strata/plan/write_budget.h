#pragma once

#include <cstdint>
#include <string>

#include <strata/engine/engine.h>
#include <strata/runtime/config/config_schema.h>

namespace strata {

/// Upper bounds of the bytes that a plan writes to the NVMe tier.
struct PlannedWrites {
  /// Written by initialization; also the maximum that is dirty in RAM at any time.
  std::uint64_t home_bytes = 0;
  std::uint64_t step_bytes = 0;  ///< written by each step
};
PlannedWrites planned_writes(const RunPlan& plan);

/// Keeps the bytes written to the NVMe tier within a budget, apart from retries. A step is allowed if its
/// writes, and those of saving afterwards, which may write back everything dirty in RAM, stay within the
/// budget.
class WriteBudget {
 public:
  WriteBudget(std::uint64_t budget_bytes, PlannedWrites planned)
      : budget_bytes_(budget_bytes), planned_(planned) {}

  static constexpr std::uint64_t kMeasured = 3;  ///< steps after which steps_left() uses measured writes
  /// Call it before the first step. `written_bytes`, here and in after_step(): written by the store so far.
  void begin(std::uint64_t written_bytes) { first_bytes_ = written_bytes_ = written_bytes; }
  /// Whether the budget allows another plan, which writes all states again, and a step of it.
  bool allows_replan(PlannedWrites planned) const noexcept {
    return budget_bytes_ == kUnlimitedBytes || planned.step_bytes == 0 ||
           all_written() + planned_.home_bytes + 2 * planned.home_bytes + planned.step_bytes <= budget_bytes_;
  }
  /// Continues with another plan. `earlier_bytes`: written by all earlier plans; `written_bytes`: by the new
  /// plan's store since it was created.
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
  double steps_left() const noexcept;  ///< approximate
  std::uint64_t steps() const noexcept { return steps_; }
  /// "1200 of 1500 bytes of io.write_budget are written; a step and its checkpoint may write 400 more".
  std::string to_string() const;

 private:
  std::uint64_t reserve_bytes() const noexcept { return planned_.step_bytes + planned_.home_bytes; }
  std::uint64_t all_written() const noexcept { return earlier_bytes_ + written_bytes_; }
  std::uint64_t budget_bytes_;
  PlannedWrites planned_;
  std::uint64_t earlier_bytes_ = 0;  // written by earlier plans
  std::uint64_t first_bytes_ = 0, written_bytes_ = 0, steps_ = 0;
};

/// `budget_bytes`: io.write_budget. Errors: `does_not_fit` if it does not allow a single step.
Status check_write_budget(std::uint64_t budget_bytes, const RunPlan& plan);
/// A line for the start table; empty if writes are not limited or there are none.
std::string write_budget_text(std::uint64_t budget_bytes, const RunPlan& plan);

}  // namespace strata
