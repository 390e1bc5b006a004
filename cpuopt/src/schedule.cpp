#include <strata/cpuopt/schedule.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include <strata/runtime/str.h>

namespace strata::cpuopt {

Status validate(const LrSchedule& s) {
  if (!(std::isfinite(s.lr) && s.lr >= 0.0))
    return Status::error(Code::invalid,
                         str("schedule: lr is ", s.lr, "; it must be a finite number, 0 or more"));
  if (!(std::isfinite(s.min_lr) && s.min_lr >= 0.0 && s.min_lr <= s.lr))
    return Status::error(Code::invalid,
                         str("schedule: min_lr is ", s.min_lr, "; it must be between 0 and lr = ", s.lr));
  if (s.warmup_steps < 0 || s.total_steps < s.warmup_steps)
    return Status::error(Code::invalid, str("schedule: ", s.warmup_steps, " warm-up steps, but only ",
                                            s.total_steps, " steps in total"));
  if (s.kind == ScheduleKind::wsd && (s.decay_steps < 0 || s.warmup_steps + s.decay_steps > s.total_steps))
    return Status::error(Code::invalid,
                         str("schedule: ", s.warmup_steps, " warm-up steps and ", s.decay_steps,
                             " decay steps, but only ", s.total_steps, " steps in total"));
  return Status::ok();
}

double learning_rate(const LrSchedule& s, std::int64_t step) noexcept {
  step = std::max<std::int64_t>(step, 1);
  if (step < s.warmup_steps) return s.lr * static_cast<double>(step) / static_cast<double>(s.warmup_steps);
  if (s.kind == ScheduleKind::constant) return s.lr;
  if (s.kind == ScheduleKind::wsd && s.decay_steps == 0) return s.lr;
  if (step > s.total_steps) return s.min_lr;
  const std::int64_t begin = s.kind == ScheduleKind::wsd ? s.total_steps - s.decay_steps : s.warmup_steps;
  if (step <= begin) return s.lr;
  // As in PyTorch, whose steps are counted from 0: the minimum would be that of the step after the last one.
  const double done = static_cast<double>(step - 1 - begin) / static_cast<double>(s.total_steps - begin);
  const double left =
      s.kind == ScheduleKind::cosine ? 0.5 * (1.0 + std::cos(std::numbers::pi * done)) : 1.0 - done;
  return s.min_lr + (s.lr - s.min_lr) * left;
}

}  // namespace strata::cpuopt
