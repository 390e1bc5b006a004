#pragma once

#include <cstdint>

#include <strata/kernels/values/delta_heads.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

/// The gated delta rule (Yang, Kautz and Hatamizadeh 2024, "Gated Delta Networks"). Every value head has a
/// state S [key_dim, value_dim] in f32, which is zero at the beginning of a document:
///   S = e^g S;  S = S + k beta (v - S^T k)^T;  out = S^T q
/// where k and q are divided by sqrt(their sum of squares + 1e-6), and q by sqrt(key_dim) too. All arithmetic
/// is f32.
///
/// Rows are processed in chunks of 64 (their section 3.3), which begin where a document does. Every sum runs
/// over the rows of a chunk or over the elements of a head in ascending order. So the bits of a row of `out`
/// depend on the row and the earlier rows of its document alone, and are those of CUDA and of every
/// instruction set.
struct DeltaRuleForwardArgs {
  TensorView qkv;      ///< stored dtype [T, heads.qkv_width()]
  TensorView g, beta;  ///< f32 [T, value_heads]; g is 0 or less
  TensorView doc_start =
      {};          ///< i32, T values: t % seq of the first token of token t's document; rank 0 for none
  TensorView out;  ///< stored dtype [T, value_heads * value_dim], written
  /// f32 [T / seq, value_heads, key_dim, value_dim] or rank 0: the state before the first row of each
  /// sequence, whose first document goes on from it, and the one after the last row, written.
  TensorView initial = {}, last = {};
  DeltaHeads heads;
  BufferView workspace;  ///< delta_rule_forward_workspace_bytes(T, heads), 4-aligned
};
std::size_t delta_rule_forward_workspace_bytes(std::int64_t tokens, const DeltaHeads& heads) noexcept;
Status delta_rule_forward_async(Backend& backend, Stream& stream, const DeltaRuleForwardArgs& args);
void delta_rule_forward_host(const DeltaRuleForwardArgs& args, ThreadPool& pool);

/// The derivative, for states that begin with zero. It computes the states at the borders of chunks again
/// instead of having them stored: they are 4 key_dim value_dim value_heads / 64 bytes a token, as many as
/// all other values that a layer keeps for its derivative, and take a few percent of the work of the layer's
/// matrices to compute. A chunk that continues a document begins at least 64 rows after the one before, so
/// that borders number row / 64, and their memory does not depend on documents.
struct DeltaRuleBackwardArgs {
  TensorView qkv, g, beta, doc_start = {};  ///< as in the forward
  TensorView dout;                          ///< as `out`
  TensorView dqkv, dg, dbeta;               ///< as qkv, g and beta, written
  DeltaHeads heads;
  BufferView workspace;  ///< delta_rule_backward_workspace_bytes(T, heads), 4-aligned
};
std::size_t delta_rule_backward_workspace_bytes(std::int64_t tokens, const DeltaHeads& heads) noexcept;
Status delta_rule_backward_async(Backend& backend, Stream& stream, const DeltaRuleBackwardArgs& args);
void delta_rule_backward_host(const DeltaRuleBackwardArgs& args, ThreadPool& pool);

/// The rule for rows of sequences whose states are kept (decoding, and a prompt in pieces). A state holds S
/// at the last border of a chunk, and what the rows since then need of each other: a row then has the bits
/// that it has in the forward above, in whatever pieces its sequence comes. A sequence begins at position 0,
/// whatever its state holds then; the rows of one sequence come in ascending order of positions, without
/// gaps.
struct CachedDeltaRuleArgs {
  TensorView qkv;        ///< stored dtype [R, heads.qkv_width()]
  TensorView g, beta;    ///< f32 [R, value_heads]
  TensorView positions;  ///< i32, R values: the position in the sequence
  TensorView slots;      ///< i32, R values in [0, sequences), or -1 for no token, whose row of out is 0
  TensorView state;  ///< f32 [sequences, key_heads, delta_state_elems(heads)]: read, and written for the rows
  TensorView out;    ///< stored dtype [R, value_heads * value_dim], written
  DeltaHeads heads;
  BufferView workspace;  ///< cached_delta_rule_workspace_bytes(heads), 4-aligned
};
/// f32 values of the state of a key head and its value heads.
std::int64_t delta_state_elems(const DeltaHeads& heads) noexcept;
std::size_t cached_delta_rule_workspace_bytes(const DeltaHeads& heads) noexcept;
Status cached_delta_rule_async(Backend& backend, Stream& stream, const CachedDeltaRuleArgs& args);
void cached_delta_rule_host(const CachedDeltaRuleArgs& args, ThreadPool& pool);

}  // namespace strata::kernels
