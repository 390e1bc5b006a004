#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include <strata/runtime/tensor_view.h>

namespace strata::kernels::detail {

/// Rows of f32 logits and their results: the losses, and in `dlogits` the gradient of the mean of all losses
/// times `factor`, which may overwrite the logits. `all_targets` and `divisor` (null: the number of targets
/// that count) belong to all `all_rows` rows, of which these are some.
struct LossRows {
  float* logits;
  const std::int32_t* targets;
  float* losses;
  std::int64_t rows, vocab;
  std::byte* dlogits;
  DType dlogits_dtype;
  const std::int32_t* all_targets;
  std::int64_t all_rows;
  const float* divisor;
  float factor;
  float softcap;  ///< logits are soft-capped in place first; 0: no cap
};
Status compute_row_losses(const LossRows& rows, cudaStream_t queue);
Status compute_row_losses_and_gradients(const LossRows& rows, cudaStream_t queue);

Status compute_mean_loss(const float* losses, const std::int32_t* targets, const float* divisor, float* mean,
                         std::int64_t rows, cudaStream_t queue);

}  // namespace strata::kernels::detail
