#pragma once

#include <cstddef>
#include <span>

// The advantages of a policy's tokens, in f64. A rollout's tokens are those that the policy chose.

namespace strata {

/// Computes the advantages of GRPO (Shao et al. 2024, arXiv 2402.03300, section 4.1.2): in each group of
/// `size` rewards, how far each is from their mean, divided by their deviation (with size - 1 degrees of
/// freedom) plus 1e-4. Without `by_deviation` it is not divided (Dr. GRPO: Liu et al. 2025, arXiv
/// 2503.20783). A group of one, or of equal rewards, has no advantage.
void group_advantages(std::span<const double> rewards, std::size_t size, bool by_deviation,
                      std::span<double> advantages);

struct GaeOptions {
  double gamma = 1;
  double lambda = 0.95;
};
/// Generalized advantages (Schulman et al. 2016, arXiv 1506.02438, equation 16) of one rollout, whose last
/// token is followed by nothing, and returns, which are advantages plus values.
void generalized_advantages(std::span<const double> rewards, std::span<const float> values,
                            const GaeOptions& options, std::span<double> advantages,
                            std::span<double> returns);

/// Subtracts the mean, and divides by the deviation (with n - 1 degrees of freedom) plus 1e-8. Fewer than two
/// values, or equal ones, become 0.
void whiten(std::span<double> values);

/// Keeps the KL divergence near a target (Ziegler et al. 2019, arXiv 1909.08593, section 2.2): the
/// coefficient after `n` rollouts that had the divergence `kl`.
struct KlControl {
  double target = 0;       ///< 0: the coefficient stays as it is
  double horizon = 10000;  ///< rollouts
  double after(double coefficient, double kl, double n) const;
};

}  // namespace strata
