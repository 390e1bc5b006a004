#pragma once

#include <cstdint>

#include <strata/runtime/dtype.h>

namespace strata {

/// Factor of the loss before backward, so that gradients stored in f16 do not underflow (Micikevicius et al.
/// 2018, arXiv 1710.03740, section 3.2). It is a power of two, so dividing by it is exact. It doubles after
/// kGrowthInterval steps without an overflow and halves at each overflow, whose step is then retried with the
/// same data: no step and no sample is lost.
struct LossScale {
  static constexpr std::int64_t kGrowthInterval = 2000;
  static constexpr double kMax = 16777216.0;  ///< 2^24

  double value = 1;
  std::int64_t good_steps = 0;  ///< since the last change

  static constexpr bool is_valid(double scale) noexcept {
    double power = 1;
    while (power < scale && power < kMax) power *= 2;
    return power == scale;
  }
  void step_done() noexcept {
    if (++good_steps < kGrowthInterval) return;
    good_steps = 0;
    if (value < kMax) value *= 2;
  }
  /// Halves the scale. Returns false if it is already 1.
  bool back_off() noexcept {
    good_steps = 0;
    if (value <= 1) return false;
    value /= 2;
    return true;
  }
  friend bool operator==(const LossScale&, const LossScale&) = default;
};

}  // namespace strata
