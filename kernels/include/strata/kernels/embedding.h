#pragma once

#include <cstdint>

#include <strata/runtime/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

// Rows: a tensor of rows may have any rank; its last extent is the row, the product of the others the row
// count T. Per-row tensors need T elements. Every *_async checks shapes and dtypes (`invalid` names the
// tensor and both shapes), queues the work in stream order and waits for nothing; the views must outlive the
// queued work. On CUDA it returns `unsupported` until the device twin exists. Every *_host computes at once
// on `pool`, without checks. Results depend on shapes and values alone, never on threads.
//
// Storage: an op's activations and parameters are kept in one dtype, that of its first operand: f32, bf16 or
// f16 ("kept"). Arithmetic is f32, and a result is rounded once, to nearest even, when it is stored. Row
// statistics, losses, tables of angles and workspaces are f32. A parameter's gradient is kept likewise or in
// f32, but only an f32 one can be accumulated into: adding to 16 bits would round the sum a second time.

/// x[t] = table[ids[t] + offset].
struct EmbeddingForwardArgs {
  TensorView ids;    ///< i32, T values; with the offset in [0, V), which the caller has checked
  TensorView table;  ///< kept [V, h]
  TensorView x;      ///< kept [..., h], T rows, written
  std::int64_t offset = 0;
};
Status embedding_forward_async(Backend& backend, Stream& stream, const EmbeddingForwardArgs& args);
void embedding_forward_host(const EmbeddingForwardArgs& args, ThreadPool& pool);

/// The table's gradient; a row's sum is in token order, and is added to what the table holds if asked to.
struct EmbeddingBackwardArgs {
  TensorView ids;     ///< as in the forward
  TensorView dx;      ///< kept [..., h], T rows
  TensorView dtable;  ///< f32 or kept [V, h], written
  std::int64_t offset = 0;
  bool accumulate = false;
  BufferView workspace;  ///< embedding_backward_workspace_bytes(T, V), 4-aligned
};
std::size_t embedding_backward_workspace_bytes(std::int64_t tokens, std::int64_t vocab) noexcept;
Status embedding_backward_async(Backend& backend, Stream& stream, const EmbeddingBackwardArgs& args);
void embedding_backward_host(const EmbeddingBackwardArgs& args, ThreadPool& pool);

}  // namespace strata::kernels
