#include <strata/dispatch/rows.h>
#include <strata/kernels/lora.h>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/cuda_stream.h"
#include "cuda/gemm/device_gemm.h"
#include "adapters/lora_gemms.h"

namespace strata::kernels::cuda {

Status lora_up(Backend&, Stream& stream, const LoraUpArgs& a) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  if (a.y.data != a.base.data)
    STRATA_CUDA_TRY(cudaMemcpyAsync(a.y.data, a.base.data, a.y.bytes(), cudaMemcpyDeviceToDevice, queue));
  return detail::for_each_part(a.parts, [&](const LoraPart& part, const detail::LoraOffsets& offsets) {
    return detail::device_gemm(detail::lora_up_gemm(a.u, a.b, a.y, part, offsets), nullptr, {}, queue);
  });
}

Status lora_up_backward_input(Backend&, Stream& stream, const LoraUpBackwardInputArgs& a) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return detail::for_each_part(a.parts, [&](const LoraPart& part, const detail::LoraOffsets& offsets) {
    return detail::device_gemm(detail::lora_input_gemm(a.dy, a.b, a.du, part, offsets), nullptr, {}, queue);
  });
}

// The gradient is zero if there are no rows (k = 0).
Status lora_up_backward_weight(Backend&, Stream& stream, const LoraUpBackwardWeightArgs& a) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  if (dispatch::row_count(a.dy) == 0) {
    if (!a.accumulate) STRATA_CUDA_TRY(cudaMemsetAsync(a.db.data, 0, a.db.bytes(), queue));
    return Status::ok();
  }
  return detail::for_each_part(a.parts, [&](const LoraPart& part, const detail::LoraOffsets& offsets) {
    return detail::device_gemm(detail::lora_weight_gemm(a.dy, a.u, a.db, part, offsets, a.accumulate),
                               nullptr, {}, queue);
  });
}

}  // namespace strata::kernels::cuda
