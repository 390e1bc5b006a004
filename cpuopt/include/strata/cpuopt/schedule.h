#pragma once

#include <cstdint>

#include <strata/runtime/status.h>

namespace strata::cpuopt {

enum class ScheduleKind : std::uint8_t { constant, linear, cosine, wsd };

/// Linear warm-up from 0 to `lr` over `warmup_steps`, then by kind down to `min_lr` at `total_steps`, which
/// it keeps. wsd (warm-up, stable, decay; Hu et al. 2024) keeps `lr` until the last `decay_steps`, over which
/// it falls in a line.
struct LrSchedule {
  ScheduleKind kind = ScheduleKind::constant;
  double lr = 1e-3;
  double min_lr = 0.0;  ///< ignored by `constant`
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 1;
  std::int64_t decay_steps = 0;  ///< of wsd
};

/// Errors: `invalid` for a negative or not finite rate, min_lr above lr, or warm-up longer than the whole,
/// or, of wsd, warm-up and decay together.
Status validate(const LrSchedule& schedule);

/// The rate of step `step`, counted from 1: warm-up ends at lr exactly in step `warmup_steps`. A pure
/// function in f64. Cosine: Loshchilov & Hutter 2017, Eq. 5 without restarts.
double learning_rate(const LrSchedule& schedule, std::int64_t step) noexcept;

}  // namespace strata::cpuopt
