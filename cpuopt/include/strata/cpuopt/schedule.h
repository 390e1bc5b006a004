#pragma once

#include <cstdint>

#include <strata/runtime/status.h>

namespace strata::cpuopt {

enum class ScheduleKind : std::uint8_t { constant, linear, cosine };

/// Linear warm-up from 0 to `lr` over `warmup_steps`, then by kind down to `min_lr` at `total_steps`, which
/// it keeps.
struct LrSchedule {
  ScheduleKind kind = ScheduleKind::constant;
  double lr = 1e-3;
  double min_lr = 0.0;  ///< ignored by `constant`
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 1;
};

/// Errors: `invalid` for a negative or not finite rate, min_lr above lr, or warm-up longer than the whole.
Status validate(const LrSchedule& schedule);

/// The rate of step `step`, counted from 1: warm-up ends at lr exactly in step `warmup_steps`. A pure
/// function in f64. Cosine: Loshchilov & Hutter 2017, Eq. 5 without restarts.
double learning_rate(const LrSchedule& schedule, std::int64_t step) noexcept;

}  // namespace strata::cpuopt
