#pragma once

#include <cstdint>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

/// How a router chooses k of E experts for a token, and weighs them. With the scores s = softmax(l) or
/// sigmoid(l) of the token's logits l in f32, the k experts with the largest s + bias are chosen, of equal
/// ones the first; NaN is below all numbers. Their weights are scale s_j, or scale s_j / (eps + the sum of
/// the chosen scores). Shazeer et al. 2017; with sigmoid, bias and groups DeepSeek-AI 2024 (DeepSeek-V3,
/// section 2.1.2).
struct RouterRule {
  enum class Score : std::uint8_t { softmax, sigmoid };
  Score score = Score::softmax;
  bool renormalize = false;  ///< divide by the sum of the chosen scores
  float eps = 0;
  float scale = 1;
  /// The experts are `groups` runs of equal length; only those of the `top_groups` with the largest sum of
  /// their two best s + bias can be chosen.
  std::int32_t groups = 1, top_groups = 1;
  friend bool operator==(const RouterRule&, const RouterRule&) = default;
};

struct RouterTopKArgs {
  TensorView logits;   ///< f32 [T, E]
  TensorView bias;     ///< f32 [E], added to scores for the choice alone; default view (rank 0): none
  TensorView experts;  ///< i32 [T, k], written: from the largest s + bias to the smallest
  TensorView weights;  ///< f32 [T, k], written
  RouterRule rule = {};
};
Status router_top_k_async(Backend& backend, Stream& stream, const RouterTopKArgs& args);
void router_top_k_host(const RouterTopKArgs& args, ThreadPool& pool);

/// The choice has no derivative; the weights have.
struct RouterTopKBackwardArgs {
  TensorView logits;    ///< f32 [T, E]
  TensorView experts;   ///< i32 [T, k]
  TensorView dweights;  ///< f32 [T, k]
  TensorView dlogits;   ///< f32, bf16 or f16 [T, E], written
  RouterRule rule = {};
};
Status router_top_k_backward_async(Backend& backend, Stream& stream, const RouterTopKBackwardArgs& args);
void router_top_k_backward_host(const RouterTopKBackwardArgs& args, ThreadPool& pool);

}  // namespace strata::kernels
