#pragma once

#include <cstddef>
#include <cstdint>

#include <strata/kernels/quantized_matrix.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

// The linear layers of experts whose matrices are those of a frozen base, quantized. Some experts at a time
// are dequantized to the dtype of the other operand, those alone that have rows, and multiplied as
// expert_linear.h multiplies them: a row has the bits that it has with the dequantized matrices.
//
// The weight has the matrices of experts [first, first + matrix.count) of E, all of one layout, and each op
// writes the rows of these experts alone.

/// Bytes of the workspace of both ops: at most 16 million dequantized values unless one expert has more, and
/// the last rows.
std::size_t expert_linear_quantized_workspace_bytes(const QuantizedMatrix& matrix, DType dtype) noexcept;

/// y[r] = x[r] w[e]^T + b[e] for the rows r of each expert e.
struct ExpertLinearQuantizedArgs {
  TensorView x;        ///< stored dtype [R, K]
  TensorView w;        ///< u8 [matrix.bytes()], 64-aligned
  TensorView b;        ///< stored dtype [matrix.count, N]; default view (rank 0): none
  TensorView offsets;  ///< i32 [E + 1]
  TensorView y;        ///< stored dtype [R, N]
  std::int64_t first = 0;
  BufferView workspace = {};  ///< expert_linear_quantized_workspace_bytes(), 256-aligned
  QuantizedMatrix matrix;
};
Status expert_linear_quantized_async(Backend& backend, Stream& stream, const ExpertLinearQuantizedArgs& args);
void expert_linear_quantized_host(const ExpertLinearQuantizedArgs& args, ThreadPool& pool);

/// dx[r] = dy[r] w[e].
struct ExpertLinearQuantizedBackwardInputArgs {
  TensorView dy;       ///< stored dtype [R, N]
  TensorView w;        ///< u8 [matrix.bytes()], 64-aligned
  TensorView offsets;  ///< i32 [E + 1]
  TensorView dx;       ///< stored dtype [R, K]
  std::int64_t first = 0;
  BufferView workspace = {};
  QuantizedMatrix matrix;
};
Status expert_linear_quantized_backward_input_async(Backend& backend, Stream& stream,
                                                    const ExpertLinearQuantizedBackwardInputArgs& args);
void expert_linear_quantized_backward_input_host(const ExpertLinearQuantizedBackwardInputArgs& args,
                                                 ThreadPool& pool);

}  // namespace strata::kernels
