#include <strata/kernels/linear_quantized.h>

#include "backend/cuda/cuda_stream.h"
#include "cuda/gemm/device_gemm.h"
#include "cuda/quant/dequantize_panel.h"
#include "quant/quantized_gemms.h"

namespace strata::kernels::cuda {
namespace {

template <class Args>
auto on_device(const Args& a, DType dtype, cudaStream_t queue) {
  return
      [&a, dtype, queue](const detail::Panel& panel, const detail::Gemm& gemm, const void* bias) -> Status {
        STRATA_TRY(detail::launch_dequantize_panel(a.matrix, a.w.data, panel, dtype, a.panel.data, queue));
        return detail::device_gemm(gemm, bias, a.gemm_workspace, queue);
      };
}

}  // namespace

Status linear_quantized(Backend&, Stream& stream, const LinearQuantizedArgs& a) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return detail::for_each_panel_of_rows(a, on_device(a, a.x.dtype, queue));
}
Status linear_quantized_backward_input(Backend&, Stream& stream, const LinearQuantizedBackwardInputArgs& a) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return detail::for_each_panel_of_columns(a, on_device(a, a.dy.dtype, queue));
}

}  // namespace strata::kernels::cuda
