#pragma once

#include <strata/runtime/status.h>
#include <strata/train/run_folder.h>

namespace strata::detail {

/// What a run does beside its steps. A trainer calls its hooks in order, before and after every step, outside
/// of the part of a step that allocates nothing. Errors end the run.
class StepHook {
 public:
  virtual ~StepHook() = default;
  /// Right before a step. `line` takes the step's metrics.
  virtual Status before_step(MetricsLine& line) {
    static_cast<void>(line);
    return {};
  }
  /// After a step, whose metrics `line` has.
  virtual Status after_step(MetricsLine& line) {
    static_cast<void>(line);
    return {};
  }
};

/// Whether the work of every `every` steps, 0 for never, comes after `step`.
constexpr bool is_due_after(std::int64_t step, std::int64_t every) { return every > 0 && step % every == 0; }

}  // namespace strata::detail
