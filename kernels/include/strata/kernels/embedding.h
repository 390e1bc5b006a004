#pragma once

#include <cstdint>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

// The following holds for the ops of all headers.
//
// Rows: a tensor of rows may have any rank; its last extent is the row length, and the number of rows, T, is
// the product of the other extents. Per-row tensors need T elements. Every *_async checks shapes and dtypes
// (`invalid` names the tensor and both shapes), queues the work in stream order and does not wait; the views
// must outlive the queued work. In a build without CUDA it returns `unsupported` for a CUDA backend. Every
// *_host computes immediately on `pool`, without checks. Results depend only on shapes and values, never on
// threads.
//
// Stored dtype: all activations and parameters of an op have one dtype, that of its first operand: f32, bf16
// or f16. Arithmetic is f32, and a result is rounded once, to nearest even, when it is stored. Row
// statistics, losses, tables of angles and workspaces are f32. A parameter's gradient has the stored dtype or
// f32, but only an f32 gradient can be accumulated into: adding to a 16-bit sum would round it a second time.

/// x[t] = table[ids[t] + offset].
struct EmbeddingForwardArgs {
  TensorView ids;    ///< i32, T values; id + offset is in [0, V), which the caller has checked
  TensorView table;  ///< stored dtype [V, h]
  TensorView x;      ///< stored dtype [..., h], T rows, written
  std::int64_t offset = 0;
  /// Whether the table is a part of one: ids whose row it does not have give rows of zeros. (Then the caller
  /// has checked ids against the whole table.)
  bool is_part = false;
};
Status embedding_forward_async(Backend& backend, Stream& stream, const EmbeddingForwardArgs& args);
void embedding_forward_host(const EmbeddingForwardArgs& args, ThreadPool& pool);

/// The gradient of the table. A table row's sum is in token order, and is added to dtable if `accumulate`.
struct EmbeddingBackwardArgs {
  TensorView ids;     ///< as in the forward
  TensorView dx;      ///< stored dtype [..., h], T rows
  TensorView dtable;  ///< f32 or stored dtype [V, h], written
  std::int64_t offset = 0;
  bool accumulate = false;
  BufferView workspace;  ///< embedding_backward_workspace_bytes(T, V), 4-aligned
  bool is_part = false;  ///< as in the forward
};
std::size_t embedding_backward_workspace_bytes(std::int64_t tokens, std::int64_t vocab) noexcept;
Status embedding_backward_async(Backend& backend, Stream& stream, const EmbeddingBackwardArgs& args);
void embedding_backward_host(const EmbeddingBackwardArgs& args, ThreadPool& pool);

}  // namespace strata::kernels
