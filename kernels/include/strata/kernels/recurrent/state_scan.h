#pragma once

#include <cstdint>

#include <strata/kernels/values/scan_heads.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

/// The state space layer of Mamba-2 (Dao and Gu 2024, "Transformers are SSMs"). Every head has a state S
/// [state_dim, head_dim] in f32, which is zero at the beginning of a document; B and C are those of its
/// group:
///   S = e^g S + B (step x)^T;  out = S^T C + d x
/// All arithmetic is f32.
///
/// Rows are processed in chunks of 64 (their section 6), which begin where a document does. Every sum runs
/// over the rows of a chunk or over the elements of a head in ascending order. So the bits of a row of `out`
/// depend on the row and the earlier rows of its document alone, and are those of CUDA and of every
/// instruction set. Heads of a group are computed by ScanHeads::block() of them, in parallel; each block
/// multiplies C and B^T of a chunk once.
struct StateScanForwardArgs {
  TensorView xbc;      ///< stored dtype [T, heads.xbc_width()]
  TensorView step, g;  ///< f32 [T, heads]; g is 0 or less
  TensorView d;        ///< f32 [heads]
  TensorView doc_start =
      {};          ///< i32, T values: t % seq of the first token of token t's document; rank 0 for none
  TensorView out;  ///< stored dtype [T, heads * head_dim], written
  /// f32 [T / seq, heads, state_dim, head_dim] or rank 0: the state before the first row of each sequence,
  /// whose first document goes on from it, and the one after the last row, written.
  TensorView initial = {}, last = {};
  ScanHeads heads;
  BufferView workspace;  ///< state_scan_forward_workspace_bytes(T, heads), 4-aligned
};
std::size_t state_scan_forward_workspace_bytes(std::int64_t tokens, const ScanHeads& heads) noexcept;
Status state_scan_forward_async(Backend& backend, Stream& stream, const StateScanForwardArgs& args);
void state_scan_forward_host(const StateScanForwardArgs& args, ThreadPool& pool);

/// The derivative, for states that begin with zero. It computes the states at the borders of chunks again, as
/// that of the delta rule (delta_rule.h). The gradients of B and C are summed over the heads of a block, then
/// over the blocks of a group; that of d is summed over rows in blocks that depend on T alone.
struct StateScanBackwardArgs {
  TensorView xbc, step, g, d, doc_start = {};  ///< as in the forward
  TensorView dout;                             ///< as `out`
  TensorView dxbc, dstep, dg;                  ///< as xbc, step and g, written
  TensorView dd;                               ///< f32 [heads], written
  ScanHeads heads;
  bool accumulate_dd = false;
  BufferView workspace;  ///< state_scan_backward_workspace_bytes(T, heads), 4-aligned
};
std::size_t state_scan_backward_workspace_bytes(std::int64_t tokens, const ScanHeads& heads) noexcept;
Status state_scan_backward_async(Backend& backend, Stream& stream, const StateScanBackwardArgs& args);
void state_scan_backward_host(const StateScanBackwardArgs& args, ThreadPool& pool);

/// The scan for rows of sequences whose states are kept, as cached_delta_rule (delta_rule.h): a row has the
/// bits that it has in the forward above, in whatever pieces its sequence comes.
struct CachedStateScanArgs {
  TensorView xbc;        ///< stored dtype [R, heads.xbc_width()]
  TensorView step, g;    ///< f32 [R, heads]
  TensorView d;          ///< f32 [heads]
  TensorView positions;  ///< i32, R values: the position in the sequence
  TensorView slots;      ///< i32, R values in [0, sequences), or -1 for no token, whose row of out is 0
  TensorView state;  ///< f32 [sequences, heads.blocks(), scan_state_elems(heads)]: read, written for the rows
  TensorView out;    ///< stored dtype [R, heads * head_dim], written
  ScanHeads heads;
  BufferView workspace;  ///< cached_state_scan_workspace_bytes(heads), 4-aligned
};
/// f32 values of the state of a block of heads.
std::int64_t scan_state_elems(const ScanHeads& heads) noexcept;
std::size_t cached_state_scan_workspace_bytes(const ScanHeads& heads) noexcept;
Status cached_state_scan_async(Backend& backend, Stream& stream, const CachedStateScanArgs& args);
void cached_state_scan_host(const CachedStateScanArgs& args, ThreadPool& pool);

}  // namespace strata::kernels
