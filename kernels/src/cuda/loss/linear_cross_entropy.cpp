#include <algorithm>

#include <strata/dispatch/rows.h>
#include <strata/kernels/linear_cross_entropy.h>

#include "backend/cuda/cuda_stream.h"
#include "cuda/gemm/device_gemm.h"
#include "cuda/loss/loss.h"
#include "loss/linear_cross_entropy_blocks.h"
#include "loss/linear_cross_entropy_gemms.h"

// Goes through the same blocks of rows as the host (linear_cross_entropy_host.cpp): computes a block's
// logits, turns them into losses and the loss's gradient, and passes that to the GEMMs of dx and dw.
namespace strata::kernels::cuda {
namespace {

template <class Body>
Status for_blocks(const LinearCrossEntropyArgs& a, cudaStream_t queue, const Body& body) {
  const std::int64_t rows = dispatch::row_count(a.x), vocab = a.w.shape.dim(0);
  const std::int64_t step = linear_cross_entropy_block_rows(rows, vocab);
  const float* divisor = dispatch::is_present(a.divisor) ? a.divisor.as<float>() : nullptr;
  for (std::int64_t first = 0; first < rows; first += step) {
    const std::int64_t n = std::min(step, rows - first);
    auto* logits = reinterpret_cast<float*>(a.workspace.data);
    STRATA_TRY(
        detail::device_gemm(detail::logits_gemm(a, first, n, logits), nullptr, a.gemm_workspace, queue));
    const bool in_place = a.x.dtype == DType::f32;
    STRATA_TRY(body(
        first,
        detail::LossRows{logits, a.targets.as<std::int32_t>() + first,
                         dispatch::is_present(a.losses) ? a.losses.as<float>() + first : nullptr, n, vocab,
                         a.workspace.data + (in_place ? 0 : detail::logits_bytes(n, vocab)), a.x.dtype,
                         a.targets.as<std::int32_t>(), rows, divisor, 1.0f, a.softcap, a.first_row,
                         dispatch::is_present(a.lse) ? a.lse.as<float>() + first : nullptr}));
  }
  return Status::ok();
}

Status store_mean_loss(const LinearCrossEntropyArgs& a, cudaStream_t queue) {
  return detail::compute_mean_loss(a.losses.as<float>(), a.targets.as<std::int32_t>(),
                                   dispatch::is_present(a.divisor) ? a.divisor.as<float>() : nullptr,
                                   a.mean_loss.as<float>(), dispatch::row_count(a.x), queue);
}

}  // namespace

Status linear_cross_entropy(Backend&, Stream& stream, const LinearCrossEntropyArgs& a) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  const Status computed = for_blocks(a, queue, [&](std::int64_t, const detail::LossRows& rows) {
    return detail::compute_row_losses(rows, queue);
  });
  return computed.is_ok() ? store_mean_loss(a, queue) : computed;
}

Status linear_log_sum_exp(Backend&, Stream& stream, const LinearCrossEntropyArgs& a) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return for_blocks(a, queue, [&](std::int64_t, const detail::LossRows& rows) {
    return detail::compute_row_log_sum_exps(rows, queue);
  });
}

Status merge_losses(Backend&, Stream& stream, const MergeLossesArgs& a) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  const std::int64_t rows = a.targets.n_elems();
  const auto* targets = a.targets.as<std::int32_t>();
  STRATA_TRY(detail::merge_row_losses(a.stats.as<float>(), a.stats.shape.dim(0) / 2, targets,
                                      a.lse.as<float>(), a.losses.as<float>(), rows, queue));
  return detail::compute_mean_loss(a.losses.as<float>(), targets,
                                   dispatch::is_present(a.divisor) ? a.divisor.as<float>() : nullptr,
                                   a.mean_loss.as<float>(), rows, queue);
}

Status linear_cross_entropy_backward(Backend&, Stream& stream, const LinearCrossEntropyBackwardArgs& a) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  const LinearCrossEntropyArgs& f = a.forward;
  const bool is_part = dispatch::is_present(f.lse);
  const Status computed = for_blocks(f, queue, [&](std::int64_t first, detail::LossRows rows) -> Status {
    rows.factor = a.scale;
    STRATA_TRY(is_part ? detail::compute_part_gradients(rows, queue)
                       : detail::compute_row_losses_and_gradients(rows, queue));
    if (dispatch::is_present(a.dx))
      STRATA_TRY(detail::device_gemm(detail::head_input_gemm(a, first, rows.rows, rows.dlogits), nullptr,
                                     f.gemm_workspace, queue));
    if (dispatch::is_present(a.dw))
      STRATA_TRY(detail::device_gemm(detail::head_weight_gemm(a, first, rows.rows, rows.dlogits), nullptr,
                                     f.gemm_workspace, queue));
    return Status::ok();
  });
  return is_part || !computed.is_ok() ? computed : store_mean_loss(f, queue);
}

}  // namespace strata::kernels::cuda
