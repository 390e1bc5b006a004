#pragma once

#include <cstdint>

namespace strata::kernels {

/// The frequencies of rotary angles: angle i at position p is p times frequency i. Frequency i of n is
/// theta^(-i / n) with n = rotary_dim / 2 (Su et al. 2021), and is then scaled:
/// - `linear` divides all frequencies by `factor`;
/// - `llama3` (Grattafiori et al. 2024) divides those with wavelengths above original_positions /
///   low_freq_factor, keeps those below original_positions / high_freq_factor, and blends in between;
/// - `yarn` (Peng et al. 2023, arXiv 2309.00071) divides those with fewer than beta_slow rotations in the
///   original positions, keeps those with more than beta_fast, blends in between by index, and multiplies
///   cosines and sines by attention_factor.
struct RopeFrequencies {
  enum class Scaling : std::uint8_t { none, linear, llama3, yarn } scaling = Scaling::none;
  float theta = 10000.0f;
  float factor = 1.0f;
  float low_freq_factor = 1.0f;
  float high_freq_factor = 4.0f;
  float original_positions = 8192.0f;
  float beta_fast = 32.0f;
  float beta_slow = 1.0f;
  float attention_factor = 1.0f;
  bool truncate = true;    ///< yarn: round the indices between which it blends to integers
  std::int32_t still = 0;  ///< so many frequencies, the last ones, are 0, so that their pairs do not turn
  friend bool operator==(const RopeFrequencies&, const RopeFrequencies&) = default;
};

}  // namespace strata::kernels
