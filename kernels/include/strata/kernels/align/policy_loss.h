#pragma once

#include <strata/kernels/align/loss_options.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

/// f32, T values each; nothing is read of a token whose weight is 0. The weights contain the normalization of
/// the loss: those of GRPO, Dr. GRPO and DAPO differ in nothing else.
struct PolicyTokens {
  TensorView log_probs;           ///< log-probabilities of the tokens under the policy
  TensorView old_log_probs;       ///< under the policy that sampled them
  TensorView advantages;          ///< A
  TensorView weights;             ///< w
  TensorView ref_log_probs = {};  ///< under the reference policy; rank 0: none
};

/// The clipped surrogate loss of PPO (Schulman et al. 2017, arXiv 1707.06347, equation 7) with the KL penalty
/// of GRPO (Shao et al. 2024, arXiv 2402.03300, equations 3 and 4) and the asymmetric clip of DAPO (Yu et al.
/// 2025, arXiv 2503.14476, equation 10): the sum of w l over tokens, divided by the divisor, with
///   l = -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A) + kl_coef kl,  r = exp(log_prob - old_log_prob).
/// Differences of log-probabilities are limited to +-80 inside of exponentials, so that ratios are finite.
/// Equal log-probabilities have a ratio of exactly 1. Sums are f64, of 512 lanes.
struct PolicyLossArgs {
  PolicyTokens tokens;
  TensorView divisor;  ///< f32, 1 value; not above 0: the loss is 0
  TensorView loss;     ///< f32, 1 value, written
  /// f32, 6 values, written: the sums over tokens of w; w if the clipped term is the smaller one; w (r - 1 -
  /// log r), which estimates KL(old policy || policy); w kl; and w r; then the largest r where w is not 0.
  TensorView stats;
  PolicyLossOptions options = {};
};
Status policy_loss_async(Backend& backend, Stream& stream, const PolicyLossArgs& args);
void policy_loss_host(const PolicyLossArgs& args, ThreadPool& pool);

/// The gradient of the loss; everything but log_probs is a constant.
struct PolicyLossBackwardArgs {
  PolicyTokens tokens;
  TensorView divisor;     ///< f32, 1 value
  TensorView dlog_probs;  ///< f32, T values, written
  PolicyLossOptions options = {};
};
Status policy_loss_backward_async(Backend& backend, Stream& stream, const PolicyLossBackwardArgs& args);
void policy_loss_backward_host(const PolicyLossBackwardArgs& args, ThreadPool& pool);

}  // namespace strata::kernels
