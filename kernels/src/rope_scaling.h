#pragma once

#include <strata/cpuopt/math/hd.h>
#include <strata/kernels/rope.h>

namespace strata::kernels::detail {

/// theta^(-i / n) as `f` scales it.
STRATA_HD float scaled_frequency(const RopeFrequencies& f, float plain) {
  if (f.scaling == RopeFrequencies::Scaling::none) return plain;
  if (f.scaling == RopeFrequencies::Scaling::linear) return plain / f.factor;
  const float wave = 2.0f * 3.14159265358979323846f / plain;
  if (wave < f.original_positions / f.high_freq_factor) return plain;
  if (wave > f.original_positions / f.low_freq_factor) return plain / f.factor;
  const float blend =
      (f.original_positions / wave - f.low_freq_factor) / (f.high_freq_factor - f.low_freq_factor);
  return (1.0f - blend) * (plain / f.factor) + blend * plain;
}

}  // namespace strata::kernels::detail
