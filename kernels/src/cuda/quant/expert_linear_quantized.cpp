#include <strata/kernels/experts/expert_linear_quantized.h>

#include <strata/dispatch/rows.h>

#include "backend/cuda/cuda_stream.h"
#include "cuda/quant/dequantize_panel.h"
#include "experts/quantized_experts.h"

// The host does not know which experts have rows, so the launches are those of all.
namespace strata::kernels::cuda {

Status expert_linear_forward(Backend& backend, Stream& stream, const ExpertLinearForwardArgs& args);
Status expert_linear_backward_input(Backend& backend, Stream& stream,
                                    const ExpertLinearBackwardInputArgs& args);

namespace {

Status dequantize_group(const QuantizedMatrix& matrix, const TensorView& offsets, std::int64_t first,
                        std::int64_t rows, const detail::ExpertGroup& group, Stream& stream) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return detail::launch_dequantize_experts(
      matrix, group.bytes, {offsets.as<std::int32_t>(), first + group.first, group.count, rows},
      group.panel.dtype, group.panel.data, queue);
}

}  // namespace

Status expert_linear_quantized(Backend& backend, Stream& stream, const ExpertLinearQuantizedArgs& a) {
  return detail::for_each_group(
      a, a.x.dtype, [&](const detail::ExpertGroup& group, BufferView rest) -> Status {
        STRATA_TRY(dequantize_group(a.matrix, a.offsets, a.first, dispatch::row_count(a.x), group, stream));
        return expert_linear_forward(backend, stream, detail::forward_of_group(a, group, rest));
      });
}
Status expert_linear_quantized_backward_input(Backend& backend, Stream& stream,
                                              const ExpertLinearQuantizedBackwardInputArgs& a) {
  return detail::for_each_group(
      a, a.dy.dtype, [&](const detail::ExpertGroup& group, BufferView rest) -> Status {
        STRATA_TRY(dequantize_group(a.matrix, a.offsets, a.first, dispatch::row_count(a.dy), group, stream));
        return expert_linear_backward_input(backend, stream, detail::backward_of_group(a, group, rest));
      });
}

}  // namespace strata::kernels::cuda
