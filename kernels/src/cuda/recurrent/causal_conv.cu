#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/recurrent/causal_conv.h>

#include "cuda/partial_sums.cuh"
#include "recurrent/conv_operands.h"
#include "work_split.h"

// The grids have channels in x, and in y rows, of which a block has several if there are many, or blocks of
// rows.
namespace strata::kernels::cuda {
namespace {

using dispatch::kThreads;
using dispatch::row_grid;

template <class T>
__global__ void __launch_bounds__(kThreads) conv_rows(detail::ConvOperands<T> c, T* y) {
  const std::int64_t channel = dispatch::thread_index();
  if (channel >= c.channels) return;
  for (std::int64_t row = blockIdx.y; row < c.rows.rows; row += gridDim.y)
    y[row * c.channels + channel] = from_f32<T>(detail::conv_activation(c.sum(row, channel), c.silu));
}
template <class T>
__global__ void __launch_bounds__(kThreads) conv_d_rows(detail::ConvOperands<T> c, const T* dy, T* dx) {
  const std::int64_t channel = dispatch::thread_index();
  if (channel >= c.channels) return;
  for (std::int64_t row = blockIdx.y; row < c.rows.rows; row += gridDim.y)
    dx[row * c.channels + channel] = from_f32<T>(c.d_x(dy, row, channel));
}
template <class T>
__global__ void __launch_bounds__(kThreads)
    conv_d_weights(detail::ConvOperands<T> c, const T* dy, std::int64_t rows_of_block, float* partials) {
  const std::int64_t channel = dispatch::thread_index(), taps = c.rows.taps, block = blockIdx.y;
  if (channel >= c.channels) return;
  float sums[kMostConvTaps + 1];
  const std::int64_t first = block * rows_of_block,
                     last = first + rows_of_block < c.rows.rows ? first + rows_of_block : c.rows.rows;
  c.d_weights(dy, first, last, channel, sums);
  float* const partial = partials + block * c.channels * (taps + 1);
  for (std::int64_t k = 0; k < taps; ++k) partial[channel * taps + k] = sums[k];
  partial[c.channels * taps + channel] = sums[taps];
}
template <class T>
__global__ void __launch_bounds__(kThreads)
    cached_channels(detail::ConvOperands<T> c, detail::CachedConv<T> of) {
  const std::int64_t channel = dispatch::thread_index();
  if (channel < c.channels) detail::cached_conv_channel(c, of, channel);
}

}  // namespace

Status causal_conv_forward(Backend&, Stream& stream, const CausalConvForwardArgs& a) {
  if (a.x.n_elems() == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch::dispatch_launch(a.x.dtype, [&]<class T>(std::type_identity<T>) {
    const auto c = detail::conv_operands<T>(a);
    conv_rows<<<row_grid(c.rows.rows, c.channels), kThreads, 0, queue>>>(c, a.y.as<T>());
  });
}

Status causal_conv_backward(Backend&, Stream& stream, const CausalConvBackwardArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.x), channels = dispatch::row_length(a.x),
                     taps = dispatch::row_length(a.weight), stride = channels * (taps + 1);
  const detail::RowBlocks blocks = detail::row_blocks(rows);
  auto* const partials = reinterpret_cast<float*>(a.workspace.data);
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  if (rows > 0)
    STRATA_TRY(dispatch::dispatch_launch(a.x.dtype, [&]<class T>(std::type_identity<T>) {
      const auto c = detail::conv_operands<T>(a);
      const dim3 by_blocks = {dispatch::num_blocks(channels, kThreads), static_cast<unsigned>(blocks.count)};
      conv_d_weights<<<by_blocks, kThreads, 0, queue>>>(c, a.dy.as<T>(), blocks.rows, partials);
      conv_d_rows<<<row_grid(rows, channels), kThreads, 0, queue>>>(c, a.dy.as<T>(), a.dx.as<T>());
    }));
  STRATA_TRY(sum_partials(partials, blocks.count, stride, a.dweight, a.accumulate_dweight, queue));
  if (!dispatch::is_present(a.dbias)) return Status::ok();
  return sum_partials(partials + channels * taps, blocks.count, stride, a.dbias, a.accumulate_dbias, queue);
}

Status cached_causal_conv(Backend&, Stream& stream, const CachedCausalConvArgs& a) {
  if (a.x.n_elems() == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch::dispatch_launch(a.x.dtype, [&]<class T>(std::type_identity<T>) {
    const auto c = detail::cached_conv_operands<T>(a);
    cached_channels<<<dispatch::num_blocks(c.channels, kThreads), kThreads, 0, queue>>>(
        c, detail::cached_conv<T>(a));
  });
}

}  // namespace strata::kernels::cuda
