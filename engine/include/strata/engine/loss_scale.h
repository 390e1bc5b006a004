#pragma once

#include <cstdint>

#include <strata/runtime/dtype.h>

namespace strata {

/// What the loss is multiplied by before backward, so that gradients kept in f16 do not vanish (Micikevicius
/// et al. 2018, arXiv 1710.03740, section 3.2): a power of two, so that taking it out again is exact. It
/// doubles after kGrowthInterval steps without an overflow and halves at each, whose step is then done again
/// with the same data: no step and no sample is lost.
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
  /// Whether there is a smaller one.
  bool back_off() noexcept {
    good_steps = 0;
    if (value <= 1) return false;
    value /= 2;
    return true;
  }
  friend bool operator==(const LossScale&, const LossScale&) = default;
};

}  // namespace strata
