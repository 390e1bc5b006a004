#pragma once

#include <cstdint>

#include <strata/runtime/status.h>

namespace strata::cpuopt {

enum class ScheduleKind : std::uint8_t { constant, linear, cosine, wsd };

/// Linear warm-up from 0 to `lr` over `warmup_steps`, then a decay according to `kind` that reaches `min_lr`
/// after `total_steps`, as in PyTorch: the last step is still above it, and the rate stays there afterwards.
/// wsd (warm-up, stable, decay; Hu et al. 2024) holds `lr` until the last `decay_steps`, during which it
/// decays linearly.
struct LrSchedule {
  ScheduleKind kind = ScheduleKind::constant;
  double lr = 1e-3;
  double min_lr = 0.0;  ///< ignored by `constant`
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 1;
  std::int64_t decay_steps = 0;  ///< wsd only
};

/// Errors: `invalid` if a rate is negative or not finite, min_lr is above lr, or total_steps is less than
/// warmup_steps (for wsd: less than warmup_steps + decay_steps).
Status validate(const LrSchedule& schedule);

/// The rate of step `step`, counted from 1; steps `warmup_steps` and the one after it have exactly lr. A pure
/// function, computed in f64. Cosine: Loshchilov & Hutter 2017, Eq. 5 without restarts.
double learning_rate(const LrSchedule& schedule, std::int64_t step) noexcept;

}  // namespace strata::cpuopt
