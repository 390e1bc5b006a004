#include <strata/dispatch/rows.h>
#include <strata/kernels/linear_cross_entropy.h>

#include "backend/cuda/cuda_stream.h"
#include "cuda/loss/head_device.h"
#include "cuda/loss/loss.h"

// Goes through the same blocks of rows as the host (linear_cross_entropy_host.cpp): computes a block's
// logits, turns them into losses and the loss's gradient, and passes that to the GEMMs of dx and dw.
namespace strata::kernels::cuda {
namespace {

template <class Body>
Status for_blocks(const LinearCrossEntropyArgs& a, cudaStream_t queue, const Body& body) {
  const float* divisor = dispatch::is_present(a.divisor) ? a.divisor.as<float>() : nullptr;
  const auto row_of = [&](const TensorView& view, std::int64_t row) {
    return dispatch::is_present(view) ? view.as<float>() + row : nullptr;
  };
  return detail::for_device_blocks(detail::head_of(a), queue, [&](const detail::LogitsBlock& block) {
    return body(block, detail::LossRows{block.logits, a.targets.as<std::int32_t>() + block.first,
                                        row_of(a.losses, block.first), block.n, block.vocab, block.dlogits,
                                        a.x.dtype, a.targets.as<std::int32_t>(), dispatch::row_count(a.x),
                                        divisor, 1.0f, a.softcap, a.first_row, row_of(a.lse, block.first)});
  });
}

Status store_mean_loss(const LinearCrossEntropyArgs& a, cudaStream_t queue) {
  return detail::compute_mean_loss(a.losses.as<float>(), a.targets.as<std::int32_t>(),
                                   dispatch::is_present(a.divisor) ? a.divisor.as<float>() : nullptr,
                                   a.mean_loss.as<float>(), dispatch::row_count(a.x), queue);
}

}  // namespace

Status linear_cross_entropy(Backend&, Stream& stream, const LinearCrossEntropyArgs& a) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  const Status computed = for_blocks(a, queue, [&](const detail::LogitsBlock&, const detail::LossRows& rows) {
    return detail::compute_row_losses(rows, queue);
  });
  return computed.is_ok() ? store_mean_loss(a, queue) : computed;
}

Status linear_log_sum_exp(Backend&, Stream& stream, const LinearCrossEntropyArgs& a) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return for_blocks(a, queue, [&](const detail::LogitsBlock&, const detail::LossRows& rows) {
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
  const Status computed = for_blocks(f, queue, [&](const detail::LogitsBlock& block, detail::LossRows rows) {
    rows.factor = a.scale;
    STRATA_TRY(is_part ? detail::compute_part_gradients(rows, queue)
                       : detail::compute_row_losses_and_gradients(rows, queue));
    return detail::device_gradient_gemms(detail::head_of(f), block, a.dx, a.dw, a.accumulate_dw, queue);
  });
  return is_part || !computed.is_ok() ? computed : store_mean_loss(f, queue);
}

}  // namespace strata::kernels::cuda
