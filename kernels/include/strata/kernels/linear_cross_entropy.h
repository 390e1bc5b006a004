#pragma once

#include <strata/kernels/values/head_blocks.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

/// The cross entropy of logits = x w^T, fused with the GEMM: logits exist in f32 only for one block of rows
/// at a time (head_block_rows). Losses, their mean and targets below 0 are as in
/// CrossEntropyForwardArgs.
struct LinearCrossEntropyArgs {
  TensorView x;             ///< f32, bf16 or f16 [..., K], T rows
  TensorView w;             ///< as x, [V, K]
  TensorView targets;       ///< i32, T values below V; the caller has checked them
  TensorView losses;        ///< f32, T values, written
  TensorView mean_loss;     ///< f32, 1 value, written
  TensorView divisor = {};  ///< f32, 1 value; rank 0: the number of targets that are not ignored
  BufferView workspace;     ///< linear_cross_entropy_workspace_bytes(T, V, dtype of x, blocks), 64-aligned
  BufferView gemm_workspace =
      {};                ///< linear_cross_entropy_gemm_workspace_bytes(T, V, K), 256-aligned, or none
  float softcap = 0.0f;  ///< logits l become softcap tanh(l / softcap); 0: no cap
  /// Targets are numbers of rows of a larger matrix, of which w has rows [first_row, first_row + V).
  std::int64_t first_row = 0;
  /// f32, T values: the log-sum-exp of all logits of each row, written by linear_log_sum_exp; rank 0: that of
  /// the logits of w.
  TensorView lse = {};
  HeadBlocks blocks = HeadBlocks::host;
};
std::size_t linear_cross_entropy_workspace_bytes(std::int64_t rows, std::int64_t vocab, DType dtype,
                                                 HeadBlocks blocks = HeadBlocks::host) noexcept;
/// Workspace of its largest GEMM on a GPU, for either kind of blocks; see gemm_workspace_bytes.
std::size_t linear_cross_entropy_gemm_workspace_bytes(std::int64_t rows, std::int64_t vocab,
                                                      std::int64_t k) noexcept;
Status linear_cross_entropy_async(Backend& backend, Stream& stream, const LinearCrossEntropyArgs& args);
void linear_cross_entropy_host(const LinearCrossEntropyArgs& args, ThreadPool& pool);

/// Computes for a part of the vocabulary (Shoeybi et al. 2019, arXiv 1909.08053, section 3): in a.lse, the
/// log-sum-exp of the part's logits, and in a.losses the logit of the target, 0 where that is ignored or in
/// another part. a.mean_loss is not used.
Status linear_log_sum_exp_async(Backend& backend, Stream& stream, const LinearCrossEntropyArgs& args);
void linear_log_sum_exp_host(const LinearCrossEntropyArgs& args, ThreadPool& pool);

/// The losses from what linear_log_sum_exp wrote for every part of the vocabulary, added in their order.
struct MergeLossesArgs {
  TensorView stats;         ///< f32 [2 n, T]: of each of n parts, the log-sum-exps and the targets' logits
  TensorView targets;       ///< i32, T values
  TensorView lse;           ///< f32, T values, written: of the whole vocabulary
  TensorView losses;        ///< f32, T values, written
  TensorView mean_loss;     ///< f32, 1 value, written
  TensorView divisor = {};  ///< as in LinearCrossEntropyArgs
};
Status merge_losses_async(Backend& backend, Stream& stream, const MergeLossesArgs& args);
void merge_losses_host(const MergeLossesArgs& args, ThreadPool& pool);

/// The same loss together with its gradients, for a gradient of 1 of the mean loss: while the logits of a
/// block exist, they are replaced by their gradient, rounded once to the dtype of x for the GEMMs (Hsu et al.
/// 2024, arXiv 2410.10989, section 3.2, which also processes rows in blocks). With forward.lse, which is
/// read, w is a part of the vocabulary, and neither losses nor their mean are computed.
struct LinearCrossEntropyBackwardArgs {
  LinearCrossEntropyArgs forward;
  TensorView dx = {};  ///< as x, written; rank 0: not computed
  TensorView dw = {};  ///< f32 [V, K], written: a sum over blocks of rows; rank 0: not computed
  bool accumulate_dw = false;
  float scale = 1.0f;  ///< multiplies both gradients
};
Status linear_cross_entropy_backward_async(Backend& backend, Stream& stream,
                                           const LinearCrossEntropyBackwardArgs& args);
void linear_cross_entropy_backward_host(const LinearCrossEntropyBackwardArgs& args, ThreadPool& pool);

}  // namespace strata::kernels
