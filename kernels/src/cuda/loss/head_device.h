#pragma once

#include <cuda_runtime_api.h>

#include <strata/dispatch/rows.h>

#include "cuda/gemm/device_gemm.h"
#include "loss/head.h"

namespace strata::kernels::detail {

/// Queues the GEMM of every block of logits in order, and after each what body(block) queues.
template <class Body>
Status for_device_blocks(const Head& head, cudaStream_t queue, const Body& body) {
  for (std::int64_t i = 0; i < n_logits_blocks(head); ++i) {
    const LogitsBlock block = logits_block(head, i);
    STRATA_TRY(device_gemm(logits_gemm(head, block), nullptr, head.gemm_workspace, queue));
    STRATA_TRY(body(block));
  }
  return Status::ok();
}

/// The GEMMs of dx and dw, as far as these are present, if the block is the last one of theirs.
inline Status device_gradient_gemms(const Head& head, const LogitsBlock& block, const TensorView& dx,
                                    const TensorView& dw, bool accumulate_dw, cudaStream_t queue) {
  const GradientRows& rows = block.gradients;
  if (rows.n == 0) return Status::ok();
  if (dispatch::is_present(dx))
    STRATA_TRY(device_gemm(head_input_gemm(head, rows, dx), nullptr, head.gemm_workspace, queue));
  if (dispatch::is_present(dw))
    STRATA_TRY(
        device_gemm(head_weight_gemm(head, rows, dw, accumulate_dw), nullptr, head.gemm_workspace, queue));
  return Status::ok();
}

}  // namespace strata::kernels::detail
