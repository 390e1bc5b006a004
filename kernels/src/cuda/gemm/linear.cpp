#include <strata/dispatch/rows.h>
#include <strata/kernels/linear.h>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/cuda_stream.h"
#include "cuda/gemm/device_gemm.h"
#include "gemm/tensor_gemm.h"

namespace strata::kernels::cuda {
namespace {

Status multiply(const detail::Gemm& gemm, const void* row_bias, BufferView workspace, Stream& stream) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return detail::device_gemm(gemm, row_bias, workspace, queue);
}

}  // namespace

Status linear_forward(Backend&, Stream& stream, const LinearForwardArgs& a) {
  return multiply(detail::gemm_of_rows(a.x, a.w, a.y), dispatch::is_present(a.b) ? a.b.data : nullptr,
                  a.workspace, stream);
}
Status linear_backward_input(Backend&, Stream& stream, const LinearBackwardInputArgs& a) {
  return multiply(detail::gemm_of_matrices(a.dy, a.w, a.dx, a.accumulate), nullptr, a.workspace, stream);
}

// The gradient is zero if there are no rows (k = 0).
Status linear_backward_weight(Backend&, Stream& stream, const LinearBackwardWeightArgs& a) {
  const detail::Gemm gemm = detail::gemm_of_columns(a.dy, a.x, a.dw, a.accumulate);
  if (gemm.k > 0) return multiply(gemm, nullptr, a.workspace, stream);
  if (a.accumulate) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  STRATA_CUDA_TRY(cudaMemsetAsync(a.dw.data, 0, a.dw.bytes(), queue));
  return Status::ok();
}

}  // namespace strata::kernels::cuda
