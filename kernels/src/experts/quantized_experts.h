#pragma once

#include <algorithm>
#include <cstdint>

#include <strata/dispatch/rows.h>
#include <strata/kernels/experts/expert_linear.h>
#include <strata/kernels/quantized_matrix.h>
#include <strata/runtime/status.h>

#include "experts/expert_panels.h"
#include "quant/quantized_gemms.h"

/// The groups of quantized experts that are dequantized together, for the host and for CUDA.
namespace strata::kernels::detail {

constexpr std::int64_t experts_at_once(const QuantizedMatrix& matrix) noexcept {
  return std::clamp(kPanelElems / matrix.matrix_elems(), std::int64_t{1}, matrix.count);
}
/// The bytes of their dequantized matrices, which are followed by the workspace of expert_linear.h.
constexpr std::size_t group_bytes(const QuantizedMatrix& matrix, DType dtype) noexcept {
  constexpr std::size_t kAlign = 256;
  const std::size_t bytes =
      static_cast<std::size_t>(experts_at_once(matrix) * matrix.matrix_elems()) * size_of(dtype);
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

/// Experts [first, first + count) of a weight, and where their dequantized matrices are.
struct ExpertGroup {
  std::int64_t first, count;
  const std::byte* bytes;
  TensorView panel;  ///< [count, N, K]
};

/// Calls run(group, args of expert_linear.h) for each group in order, until one returns an error; the values
/// of those experts of a group that have rows are to be in its panel then.
template <class Args, class Run>
Status for_each_group(const Args& a, DType dtype, const Run& run) {
  const QuantizedMatrix& q = a.matrix;
  const std::size_t before = group_bytes(q, dtype);
  const BufferView rest = a.workspace.part(before, a.workspace.bytes - before);
  for (std::int64_t first = 0; first < q.count; first += experts_at_once(q)) {
    const std::int64_t count = std::min(experts_at_once(q), q.count - first);
    const ExpertGroup group = {first, count, a.w.data + first * q.matrix_bytes(),
                               TensorView{a.workspace.data, {count, q.rows(), q.columns}, dtype}};
    STRATA_TRY(run(group, rest));
  }
  return {};
}

/// `Args` is ExpertLinearQuantizedArgs.
template <class Args>
ExpertLinearForwardArgs forward_of_group(const Args& a, const ExpertGroup& group, BufferView workspace) {
  TensorView bias = a.b;
  if (dispatch::is_present(bias)) {
    bias.data += group.first * a.matrix.rows() * static_cast<std::int64_t>(size_of(bias.dtype));
    bias.shape.dims[0] = group.count;
  }
  return {a.x, group.panel, bias, a.offsets, a.y, a.first + group.first, workspace};
}
/// `Args` is ExpertLinearQuantizedBackwardInputArgs.
template <class Args>
ExpertLinearBackwardInputArgs backward_of_group(const Args& a, const ExpertGroup& group,
                                                BufferView workspace) {
  return {a.dy, group.panel, a.offsets, a.dx, a.first + group.first, workspace};
}

}  // namespace strata::kernels::detail
