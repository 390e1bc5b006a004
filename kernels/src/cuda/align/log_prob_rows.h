#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include <strata/runtime/dtype.h>
#include <strata/runtime/status.h>

namespace strata::kernels::detail {

/// Rows of f32 logits, which are scaled in place first (LogitScale), and their results.
struct LogProbRows {
  float* logits;
  const std::int32_t* targets;
  std::int64_t rows, vocab;
  float factor, cap;
  float* lse;        ///< written with the log-probabilities, read for their gradients
  float* log_probs;  ///< null: the gradients are computed
  float* entropies;  ///< null: not computed
  const float* dlog_probs = nullptr;
  std::byte* dlogits = nullptr;  ///< may be the logits
  DType dlogits_dtype = DType::f32;
};
Status compute_log_probs(const LogProbRows& rows, cudaStream_t queue);
Status compute_log_prob_gradients(const LogProbRows& rows, cudaStream_t queue);

}  // namespace strata::kernels::detail
