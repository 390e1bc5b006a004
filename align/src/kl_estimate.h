#pragma once

#include <cmath>

namespace strata {

/// How far the reference is from the policy for a token that the policy chose, in nats: the estimators k1,
/// which is unbiased, and k3, which is never negative (Schulman 2020, "Approximating KL divergence").
inline double kl_estimate(float log_prob, float reference, bool k3) {
  const double d = static_cast<double>(reference) - static_cast<double>(log_prob);
  return k3 ? std::expm1(d) - d : -d;
}

}  // namespace strata
