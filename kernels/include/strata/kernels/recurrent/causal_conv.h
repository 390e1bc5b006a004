#pragma once

#include <cstdint>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

inline constexpr std::int64_t kMostConvTaps = 8;

/// A causal convolution of every channel by itself, over the rows of a document:
///   y[t, c] = f(bias[c] + the sum of weight[c, k] x[t - (taps - 1) + k, c]), f(z) = z sigmoid(z) or z
/// where rows before the document's first one count as zero. The sum is f32, from the oldest row to t, so the
/// bits of a row depend on the row, the earlier rows of its document, and the weights alone.
struct CausalConvForwardArgs {
  TensorView x;          ///< stored dtype [T, C]
  TensorView weight;     ///< stored dtype [C, taps], 2 to kMostConvTaps taps
  TensorView bias = {};  ///< stored dtype [C], or rank 0: none
  TensorView doc_start =
      {};                ///< i32, T values: t % seq of the first token of token t's document; rank 0 for none
  TensorView y;          ///< stored dtype [T, C], written
  std::int64_t seq = 0;  ///< rows of a sequence
  bool silu = false;
};
Status causal_conv_forward_async(Backend& backend, Stream& stream, const CausalConvForwardArgs& args);
void causal_conv_forward_host(const CausalConvForwardArgs& args, ThreadPool& pool);

/// The derivative; sums over rows are taken in blocks of rows that depend on T alone.
struct CausalConvBackwardArgs {
  TensorView x, weight, bias = {}, doc_start = {};  ///< as in the forward
  TensorView dy;                                    ///< stored dtype [T, C]
  TensorView dx;                                    ///< stored dtype [T, C], written
  TensorView dweight;  ///< f32 or stored dtype [C, taps], written; 16-bit only if it is not accumulated into
  TensorView dbias = {};  ///< the same, [C]; rank 0 if there is no bias
  std::int64_t seq = 0;
  bool silu = false;
  bool accumulate_dweight = false, accumulate_dbias = false;
  BufferView workspace;  ///< causal_conv_backward_workspace_bytes(T, C, taps), 4-aligned
};
std::size_t causal_conv_backward_workspace_bytes(std::int64_t rows, std::int64_t channels,
                                                 std::int64_t taps) noexcept;
Status causal_conv_backward_async(Backend& backend, Stream& stream, const CausalConvBackwardArgs& args);
void causal_conv_backward_host(const CausalConvBackwardArgs& args, ThreadPool& pool);

/// The convolution for rows of sequences whose last taps - 1 rows are kept (decoding, and a prompt in
/// pieces): a row has the bits that it has in the forward above. A sequence begins at position 0, whatever
/// its state holds then; the rows of one sequence come in ascending order of positions, without gaps.
struct CachedCausalConvArgs {
  TensorView x;          ///< stored dtype [R, C]
  TensorView weight;     ///< stored dtype [C, taps]
  TensorView bias = {};  ///< stored dtype [C], or rank 0: none
  TensorView positions;  ///< i32, R values: the position in the sequence
  TensorView slots;      ///< i32, R values in [0, sequences), or -1 for no token, whose row of y is 0
  TensorView state;      ///< stored dtype [sequences, taps - 1, C]: read, and written for the rows
  TensorView y;          ///< stored dtype [R, C], written
  bool silu = false;
};
Status cached_causal_conv_async(Backend& backend, Stream& stream, const CachedCausalConvArgs& args);
void cached_causal_conv_host(const CachedCausalConvArgs& args, ThreadPool& pool);

}  // namespace strata::kernels
