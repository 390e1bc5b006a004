#include <strata/kernels/recurrent/causal_conv.h>

#include <algorithm>

#include <strata/dispatch/op.h>
#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>
#include <strata/runtime/assert.h>

#include "dtype_dispatch.h"
#include "partial_sums.h"
#include "recurrent/conv_operands.h"
#include "recurrent_table.h"
#include "work_split.h"

namespace strata::kernels {
STRATA_OP(causal_conv_forward, CausalConvForwardArgs);
STRATA_OP(causal_conv_backward, CausalConvBackwardArgs);
STRATA_OP(cached_causal_conv, CachedCausalConvArgs);

namespace {

using detail::kConvChannels;

constexpr std::int64_t kForwardRows = 128;  // an item has so many

template <class T>
void forward(const CausalConvForwardArgs& a, ThreadPool& pool) {
  const detail::ConvOperands<T> c = detail::conv_operands<T>(a);
  const std::int64_t across = dispatch::ceil_div(c.channels, kConvChannels);
  pool.parallel_for(dispatch::ceil_div(c.rows.rows, kForwardRows) * across, [&](std::int64_t item) {
    const std::int64_t first = item / across * kForwardRows;
    detail::recurrent_table<T>().conv_forward(c, item % across * kConvChannels, first,
                                              std::min(first + kForwardRows, c.rows.rows), a.y.as<T>());
  });
}

// A block's partial sums are those of the weights [channels, taps], then those of the bias.
template <class T>
void backward(const CausalConvBackwardArgs& a, ThreadPool& pool) {
  const detail::ConvOperands<T> c = detail::conv_operands<T>(a);
  const std::int64_t across = dispatch::ceil_div(c.channels, kConvChannels), taps = c.rows.taps,
                     stride = c.channels * (taps + 1);
  const detail::RowBlocks blocks = detail::row_blocks(c.rows.rows);
  auto* const partials = reinterpret_cast<float*>(a.workspace.data);
  pool.parallel_for(blocks.count * across, [&](std::int64_t item) {
    const std::int64_t block = item / across, channel = item % across * kConvChannels,
                       n = std::min(kConvChannels, c.channels - channel);
    float sums[(kMostConvTaps + 1) * kConvChannels];
    detail::recurrent_table<T>().conv_backward(c, channel, block * blocks.rows,
                                               std::min((block + 1) * blocks.rows, c.rows.rows), a.dy.as<T>(),
                                               a.dx.as<T>(), sums);
    float* const partial = partials + block * stride;
    for (std::int64_t j = 0; j < n; ++j) {
      for (std::int64_t k = 0; k < taps; ++k) partial[(channel + j) * taps + k] = sums[k * kConvChannels + j];
      partial[c.channels * taps + channel + j] = sums[taps * kConvChannels + j];
    }
  });
  detail::sum_partials(partials, blocks.count, stride, a.dweight, a.accumulate_dweight, pool);
  if (dispatch::is_present(a.dbias))
    detail::sum_partials(partials + c.channels * taps, blocks.count, stride, a.dbias, a.accumulate_dbias,
                         pool);
}

template <class T>
void cached(const CachedCausalConvArgs& a, ThreadPool& pool) {
  const detail::ConvOperands<T> c = detail::cached_conv_operands<T>(a);
  const detail::CachedConv<T> of = detail::cached_conv<T>(a);
  for (std::int64_t r = 0; r < of.rows; ++r)
    STRATA_ASSERT(of.slots[r] < a.state.shape.dims[0] && (of.slots[r] < 0 || of.positions[r] >= 0), "row ", r,
                  " is at position ", of.positions[r], " of sequence ", of.slots[r], " of ",
                  a.state.shape.dims[0]);
  dispatch::parallel_for_ranges(pool, c.channels, 256, [&](std::int64_t first, std::int64_t n) {
    for (std::int64_t channel = first; channel < first + n; ++channel)
      detail::cached_conv_channel(c, of, channel);
  });
}

/// The operands that all of these ops have.
template <class Args>
void check_conv(dispatch::Check& check, const Args& a, std::int64_t rows, std::int64_t channels) {
  const std::int64_t taps = dispatch::row_length(a.weight);
  check.require(taps >= 2 && taps <= kMostConvTaps, "weight has ", taps, " taps; it must have 2 to ",
                kMostConvTaps);
  check.rows("x", a.x, rows, channels)
      .shape("weight", a.weight, a.x.dtype, {channels, taps})
      .optional_elements("bias", a.bias, a.x.dtype, channels);
}
template <class Args>
void check_sequences(dispatch::Check& check, const Args& a, std::int64_t rows) {
  check
      .require(a.seq >= 1 && rows % std::max<std::int64_t>(a.seq, 1) == 0, rows, " rows in sequences of ",
               a.seq, "; the first must be a multiple of the second")
      .optional_elements("doc_start", a.doc_start, DType::i32, rows);
}

}  // namespace

void causal_conv_forward_host(const CausalConvForwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.x.dtype, [&]<class T>(std::type_identity<T>) { forward<T>(a, pool); });
}
void causal_conv_backward_host(const CausalConvBackwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.x.dtype, [&]<class T>(std::type_identity<T>) { backward<T>(a, pool); });
}
void cached_causal_conv_host(const CachedCausalConvArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.x.dtype, [&]<class T>(std::type_identity<T>) { cached<T>(a, pool); });
}

Status causal_conv_forward_async(Backend& backend, Stream& stream, const CausalConvForwardArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.x), channels = dispatch::row_length(a.x);
  dispatch::Check check("causal_conv_forward", "x", a.x);
  check_conv(check, a, rows, channels);
  check_sequences(check, a, rows);
  STRATA_TRY(check.rows("y", a.y, rows, channels).status());
  return dispatch::enqueue(backend, stream, causal_conv_forward_op, a, {a.x, a.weight, a.bias, a.doc_start},
                           {a.y});
}

std::size_t causal_conv_backward_workspace_bytes(std::int64_t rows, std::int64_t channels,
                                                 std::int64_t taps) noexcept {
  return detail::row_sums_bytes(rows, channels * (taps + 1));
}
Status causal_conv_backward_async(Backend& backend, Stream& stream, const CausalConvBackwardArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.x), channels = dispatch::row_length(a.x),
                     taps = dispatch::row_length(a.weight);
  dispatch::Check check("causal_conv_backward", "x", a.x);
  check_conv(check, a, rows, channels);
  check_sequences(check, a, rows);
  check.rows("dy", a.dy, rows, channels)
      .rows("dx", a.dx, rows, channels)
      .gradient("dweight", a.dweight, {channels, taps}, a.accumulate_dweight)
      .workspace(a.workspace, causal_conv_backward_workspace_bytes(rows, channels, taps));
  if (dispatch::is_present(a.dbias)) check.gradient("dbias", a.dbias, {channels}, a.accumulate_dbias);
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, causal_conv_backward_op, a,
                           {a.x, a.weight, a.bias, a.doc_start, a.dy}, {a.dx, a.dweight, a.dbias},
                           a.workspace);
}

Status cached_causal_conv_async(Backend& backend, Stream& stream, const CachedCausalConvArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.x), channels = dispatch::row_length(a.x);
  dispatch::Check check("cached_causal_conv", "x", a.x);
  check_conv(check, a, rows, channels);
  STRATA_TRY(
      check.rows("y", a.y, rows, channels)
          .elements("positions", a.positions, DType::i32, rows)
          .elements("slots", a.slots, DType::i32, rows)
          .rows("state", a.state,
                a.state.shape.rank > 0 ? a.state.shape.dims[0] * (dispatch::row_length(a.weight) - 1) : 0,
                channels)
          .status());
  return dispatch::enqueue(backend, stream, cached_causal_conv_op, a,
                           {a.x, a.weight, a.bias, a.positions, a.slots}, {a.state, a.y});
}

}  // namespace strata::kernels
