#include <strata/dispatch/rows.h>
#include <strata/kernels/align/linear_log_probs.h>

#include "align/logit_scale.h"
#include "backend/cuda/cuda_stream.h"
#include "cuda/align/log_prob_rows.h"
#include "cuda/loss/head_device.h"

// Goes through the same blocks of rows as the host (linear_log_probs_host.cpp).
namespace strata::kernels::cuda {
namespace {

template <class Args>
detail::LogProbRows rows_of(const Args& a, const detail::LogitsBlock& block) {
  const detail::LogitScale scale(a.scaling);
  return {.logits = block.logits,
          .targets = a.targets.template as<std::int32_t>() + block.first,
          .rows = block.n,
          .vocab = block.vocab,
          .factor = scale.factor,
          .cap = scale.cap,
          .lse = a.lse.template as<float>() + block.first,
          .log_probs = nullptr,
          .entropies = nullptr};
}

}  // namespace

Status linear_log_probs(Backend&, Stream& stream, const LinearLogProbsArgs& a) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return detail::for_device_blocks(detail::head_of(a), queue, [&](const detail::LogitsBlock& block) {
    detail::LogProbRows rows = rows_of(a, block);
    rows.log_probs = a.log_probs.as<float>() + block.first;
    if (dispatch::is_present(a.entropies)) rows.entropies = a.entropies.as<float>() + block.first;
    return detail::compute_log_probs(rows, queue);
  });
}

Status linear_log_probs_backward(Backend&, Stream& stream, const LinearLogProbsBackwardArgs& a) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  const detail::Head head = detail::head_of(a);
  return detail::for_device_blocks(head, queue, [&](const detail::LogitsBlock& block) -> Status {
    detail::LogProbRows rows = rows_of(a, block);
    rows.dlog_probs = a.dlog_probs.as<float>() + block.first;
    rows.dlogits = block.dlogits;
    rows.dlogits_dtype = a.x.dtype;
    STRATA_TRY(detail::compute_log_prob_gradients(rows, queue));
    return detail::device_gradient_gemms(head, block, a.dx, a.dw, a.accumulate_dw, queue);
  });
}

}  // namespace strata::kernels::cuda
