#pragma once

#include <cstdint>

// The constants of the losses of alignment; what they mean is in the headers of the losses.

namespace strata::kernels {

/// Estimators of KL(policy || reference) from a token that the policy sampled, with d = log(p_ref / p)
/// (Schulman 2020, joschu.net/blog/kl-approx.html): k1 is -d, k3 is e^d - 1 - d.
enum class KlEstimator : std::uint8_t { k1, k3 };

struct PolicyLossOptions {
  float clip_low = 0.2f;  ///< the ratio is clipped to [1 - clip_low, 1 + clip_high]; infinity: not at all
  float clip_high = 0.2f;
  float kl_coef = 0;  ///< factor of the estimate of the KL divergence in the loss
  KlEstimator kl = KlEstimator::k3;
  friend bool operator==(const PolicyLossOptions&, const PolicyLossOptions&) = default;
};

struct ValueLossOptions {
  float clip = 0;  ///< values are clipped to old values +- clip; 0: not at all
  friend bool operator==(const ValueLossOptions&, const ValueLossOptions&) = default;
};

enum class PairLossKind : std::uint8_t { sigmoid, ipo };

struct PairLossOptions {
  PairLossKind kind = PairLossKind::sigmoid;
  float beta = 1;
  float label_smoothing = 0;  ///< for sigmoid, the probability that the label of a pair is wrong
  friend bool operator==(const PairLossOptions&, const PairLossOptions&) = default;
};

}  // namespace strata::kernels
