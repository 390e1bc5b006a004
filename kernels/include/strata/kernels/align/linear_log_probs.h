#pragma once

#include <cstdint>
#include <span>

#include <strata/kernels/align/log_prob_scaling.h>
#include <strata/kernels/values/head_blocks.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

/// Log-probabilities of the targets under the softmax of logits = x w^T, and entropies of the softmax. Logits
/// exist in f32 only for one block of rows at a time, as in linear_cross_entropy, whose losses on the host
/// are -log_probs bit for bit at a temperature of 1; the blocks and workspaces are the same, too. Where a
/// target is below 0, all results are 0.
struct LinearLogProbsArgs {
  TensorView x;               ///< f32, bf16 or f16 [..., K], T rows
  TensorView w;               ///< as x, [V, K]
  TensorView targets;         ///< i32, T values below V; the caller has checked them
  TensorView log_probs;       ///< f32, T values, written
  TensorView lse;             ///< f32, T values, written: the log-sum-exps of the rows' logits
  TensorView entropies = {};  ///< f32, T values, written; rank 0: not computed
  BufferView workspace;       ///< linear_cross_entropy_workspace_bytes(T, V, dtype of x, blocks), 64-aligned
  BufferView gemm_workspace =
      {};  ///< linear_cross_entropy_gemm_workspace_bytes(T, V, K), 256-aligned, or none
  LogProbScaling scaling = {};
  HeadBlocks blocks = HeadBlocks::host;
};
Status linear_log_probs_async(Backend& backend, Stream& stream, const LinearLogProbsArgs& args);
void linear_log_probs_host(const LinearLogProbsArgs& args, ThreadPool& pool);

/// What linear_log_probs says on the host of one row, bit by bit, from logits that a sampler has.
struct TokenLogProb {
  float log_prob = 0, entropy = 0;
};
/// `logits`: V values, with the model's soft cap; they are divided by `temperature`, above 0, in place.
/// `target`: 0 to V - 1.
TokenLogProb token_log_prob(std::span<float> logits, std::int32_t target, float temperature) noexcept;

/// The gradients of sum(dlog_probs * log_probs), from logits that are computed again. Where a target is below
/// 0, dlog_probs is not read.
struct LinearLogProbsBackwardArgs {
  TensorView x, w, targets;  ///< as in LinearLogProbsArgs
  TensorView lse;            ///< f32, T values that linear_log_probs wrote
  TensorView dlog_probs;     ///< f32, T values
  TensorView dx = {};        ///< as x, written; rank 0: not computed
  TensorView dw = {};        ///< f32 [V, K], written: a sum over blocks of rows; rank 0: not computed
  bool accumulate_dw = false;
  BufferView workspace, gemm_workspace = {};  ///< as in LinearLogProbsArgs
  LogProbScaling scaling = {};
  HeadBlocks blocks = HeadBlocks::host;
};
Status linear_log_probs_backward_async(Backend& backend, Stream& stream,
                                       const LinearLogProbsBackwardArgs& args);
void linear_log_probs_backward_host(const LinearLogProbsBackwardArgs& args, ThreadPool& pool);

}  // namespace strata::kernels
