#pragma once

#include <cstdint>
#include <span>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

/// losses[t] = lse[t] - logits[t, targets[t]], where lse[t] is the log-sum-exp of row t. A target below 0 is
/// ignored: its loss is 0. The mean is the sum of losses by one fixed f64 tree, divided by the divisor; it is
/// 0 if the divisor is 0.
struct CrossEntropyForwardArgs {
  TensorView logits;        ///< f32, bf16 or f16 [..., V], T rows, V >= 1
  TensorView targets;       ///< i32, T values below V; the caller has checked them
  TensorView losses;        ///< f32, T values, written
  TensorView lse;           ///< f32, T values, written
  TensorView mean_loss;     ///< f32, 1 value, written
  TensorView divisor = {};  ///< f32, 1 value; rank 0: the number of targets that are not ignored
};
Status cross_entropy_forward_async(Backend& backend, Stream& stream, const CrossEntropyForwardArgs& args);
void cross_entropy_forward_host(const CrossEntropyForwardArgs& args, ThreadPool& pool);

/// The log-probability of token `target` of one row of logits: minus its loss above, bit by bit.
float log_probability(std::span<const float> logits, std::int32_t target) noexcept;

/// dlogits = (softmax(logits) - onehot(targets)) * scale; zero rows for targets below 0.
struct CrossEntropyBackwardArgs {
  TensorView logits;            ///< f32, bf16 or f16 [..., V], T rows
  TensorView targets;           ///< i32, T values below V
  TensorView lse;               ///< f32, T values, from the forward
  TensorView dlogits;           ///< as logits, written; may be logits
  float scale = 1.0f;           ///< 1 / T gives the gradient of the mean if no target is ignored
  bool mean_reduction = false;  ///< divide `scale` by the divisor, for the gradient of the mean
  TensorView divisor = {};      ///< as in the forward
};
Status cross_entropy_backward_async(Backend& backend, Stream& stream, const CrossEntropyBackwardArgs& args);
void cross_entropy_backward_host(const CrossEntropyBackwardArgs& args, ThreadPool& pool);

}  // namespace strata::kernels
