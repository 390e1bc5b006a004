#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include <strata/simd/math/host_device.h>
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
  // These are set for a part of the vocabulary.
  std::int64_t first_row = 0;  ///< the number in the vocabulary of the first logit's row
  float* lse = nullptr;        ///< the rows' log-sum-exps; null: the logits are all of the vocabulary
  /// The number of a target among the logits of a row: below 0 if it is ignored or none of them.
  STRATA_HD std::int64_t own_target(std::int32_t target) const {
    const std::int64_t own = target - first_row;
    return target >= 0 && own < vocab ? own : -1;
  }
};
Status compute_row_losses(const LossRows& rows, cudaStream_t queue);
/// Writes lse, and as losses the targets' logits, 0 where there are none.
Status compute_row_log_sum_exps(const LossRows& rows, cudaStream_t queue);
/// The gradients for the given lse.
Status compute_part_gradients(const LossRows& rows, cudaStream_t queue);
Status compute_row_losses_and_gradients(const LossRows& rows, cudaStream_t queue);

/// The losses of `rows` rows from those of `parts` parts of the vocabulary (merge_row_loss).
Status merge_row_losses(const float* stats, std::int64_t parts, const std::int32_t* targets, float* lse,
                        float* losses, std::int64_t rows, cudaStream_t queue);

Status compute_mean_loss(const float* losses, const std::int32_t* targets, const float* divisor, float* mean,
                         std::int64_t rows, cudaStream_t queue);

}  // namespace strata::kernels::detail
