#pragma once

#include <strata/kernels/align/loss_options.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

/// P pairs of a chosen and a rejected response, in f32; nothing is read of a pair whose weight is 0.
struct ScorePairs {
  TensorView scores;           ///< 2 P values: s_c of pair i at 2 i, s_r at 2 i + 1
  TensorView ref_scores = {};  ///< 2 P values, of the reference model; rank 0: none
  TensorView weights;          ///< P values: w
  TensorView margins = {};     ///< P values, of sigmoid only; rank 0: none
};

/// Losses of preferences: the sum of w l over pairs, divided by the divisor, with
///   h = (s_c - s_r) - (ref_c - ref_r),  z = beta h - margin,
///   sigmoid: l = -(1 - label_smoothing) log sigmoid(z) - label_smoothing log sigmoid(-z),
///   ipo: l = (h - 1 / (2 beta))^2.
/// sigmoid is the loss of a reward model (Ouyang et al. 2022, arXiv 2203.02155, equation 1) if the scores are
/// rewards, beta is 1 and there is no reference, and DPO's if they are log-probabilities of responses
/// (Rafailov et al. 2023, arXiv 2305.18290, equation 7); ipo is that of Azar et al. 2023 (arXiv 2310.12036,
/// equation 17).
struct PairLossArgs {
  ScorePairs pairs;
  TensorView divisor;  ///< f32, 1 value; not above 0: the loss is 0
  TensorView loss;     ///< f32, 1 value, written
  /// f32, 4 values, written: the sums over pairs of w; w if h > 0; w beta (s_c - ref_c); and w beta (s_r -
  /// ref_r).
  TensorView stats;
  PairLossOptions options = {};
};
Status pair_loss_async(Backend& backend, Stream& stream, const PairLossArgs& args);
void pair_loss_host(const PairLossArgs& args, ThreadPool& pool);

/// The gradient of the loss; everything but scores is a constant.
struct PairLossBackwardArgs {
  ScorePairs pairs;
  TensorView divisor;  ///< f32, 1 value
  TensorView dscores;  ///< f32, 2 P values, written
  PairLossOptions options = {};
};
Status pair_loss_backward_async(Backend& backend, Stream& stream, const PairLossBackwardArgs& args);
void pair_loss_backward_host(const PairLossBackwardArgs& args, ThreadPool& pool);

}  // namespace strata::kernels
