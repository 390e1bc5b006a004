#pragma once

#include <cmath>
#include <cstdint>

#include <strata/simd/math/host_device.h>
#include <strata/kernels/rope.h>

namespace strata::kernels::detail {

/// The (fractional) index of the frequency that makes `turns` full rotations over the original positions, for
/// n frequencies (2 n rotary elements).
STRATA_HD double yarn_correction_index(const RopeFrequencies& f, std::int64_t n, float turns) {
  constexpr double kTwoPi = 6.28318530717958648;
  const double waves = static_cast<double>(f.original_positions) / (static_cast<double>(turns) * kTwoPi);
  return static_cast<double>(n) * log(waves) / log(static_cast<double>(f.theta));
}
/// The fraction of frequency i that is divided by the factor: 0 up to the index of beta_fast, 1 from the
/// index of beta_slow on, linear in between.
STRATA_HD float yarn_ramp(const RopeFrequencies& f, std::int64_t i, std::int64_t n) {
  double low = yarn_correction_index(f, n, f.beta_fast), high = yarn_correction_index(f, n, f.beta_slow);
  if (f.truncate) {
    low = floor(low);
    high = ceil(high);
  }
  low = low < 0 ? 0 : low;
  high = high > static_cast<double>(2 * n - 1) ? static_cast<double>(2 * n - 1) : high;
  if (low == high) high += 0.001;
  const double share = (static_cast<double>(i) - low) / (high - low);
  return static_cast<float>(share < 0 ? 0 : share > 1 ? 1 : share);
}

/// Scales `plain`, the frequency theta^(-i / n), according to `f`.
STRATA_HD float scaled_frequency(const RopeFrequencies& f, float plain, std::int64_t i, std::int64_t n) {
  if (i >= n - f.still) return 0.0f;
  if (f.scaling == RopeFrequencies::Scaling::none) return plain;
  if (f.scaling == RopeFrequencies::Scaling::linear) return plain / f.factor;
  if (f.scaling == RopeFrequencies::Scaling::yarn) {
    const float share = yarn_ramp(f, i, n);
    return (1.0f - share) * plain + share * (plain / f.factor);
  }
  const float wave = 2.0f * 3.14159265358979323846f / plain;
  if (wave < f.original_positions / f.high_freq_factor) return plain;
  if (wave > f.original_positions / f.low_freq_factor) return plain / f.factor;
  const float blend =
      (f.original_positions / wave - f.low_freq_factor) / (f.high_freq_factor - f.low_freq_factor);
  return (1.0f - blend) * (plain / f.factor) + blend * plain;
}

}  // namespace strata::kernels::detail
