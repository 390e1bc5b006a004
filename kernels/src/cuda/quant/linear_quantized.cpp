#include <strata/kernels/linear_quantized.h>

#include <algorithm>

#include "backend/cuda/cuda_stream.h"
#include "cuda/gemm/device_gemm.h"
#include "cuda/quant/dequantize_panel.h"
#include "quant/quantized_gemms.h"

namespace strata::kernels::cuda {
namespace {

Status dequantize(const QuantizedMatrix& matrix, const std::byte* bytes, const detail::Panel& panel,
                  DType dtype, std::byte* out, cudaStream_t queue) {
  for (std::size_t i = 0; i < matrix.n_parts(); ++i) {
    const QuantizedPart part = matrix.part(i);
    const std::int64_t begin = std::max(panel.row, part.first_row),
                       end = std::min(panel.row + panel.rows, part.first_row + part.rows);
    if (begin >= end) continue;
    const std::int64_t at = (begin - panel.row) * panel.columns * static_cast<std::int64_t>(size_of(dtype));
    STRATA_TRY(detail::launch_dequantize(
        {detail::data_of(matrix, i, bytes), (begin - part.first_row) * matrix.columns + panel.column,
         matrix.columns, end - begin, panel.columns},
        dtype, out + at, queue));
  }
  return {};
}

template <class Args>
auto on_device(const Args& a, DType dtype, cudaStream_t queue) {
  return
      [&a, dtype, queue](const detail::Panel& panel, const detail::Gemm& gemm, const void* bias) -> Status {
        STRATA_TRY(dequantize(a.matrix, a.w.data, panel, dtype, a.panel.data, queue));
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
