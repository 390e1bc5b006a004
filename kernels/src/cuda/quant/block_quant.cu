#include <utility>

#include <strata/dispatch/cuda/lanes.h>
#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/block_quant.h>

#include "cuda/quant/block_math.h"

// A half warp quantises a block; a thread dequantises eight values.
namespace strata::kernels::cuda {
namespace {

using detail::kDequantizedRun;
using dispatch::dispatch_launch;
using dispatch::half_warp_index;
using dispatch::HalfWarp;
using dispatch::kRowsPerBlock;
using dispatch::kThreads;
using dispatch::num_blocks;
using dispatch::thread_index;

template <BlockQuantFormat kFormat, class T>
__global__ void __launch_bounds__(kThreads)
    quantize(const T* x, std::int64_t n, std::int64_t block, std::uint8_t* quantized, float* scales) {
  const std::int64_t first = half_warp_index() * block;
  if (first >= n) return;
  detail::quantize_block(HalfWarp(), kFormat, x + first, first + block < n ? block : n - first,
                         quantized + quantized_bytes(kFormat, first), scales + half_warp_index());
}

template <int... kCodes>
__device__ void fill(float* levels, std::integer_sequence<int, kCodes...>) {
  ((threadIdx.x == kCodes ? void(levels[kCodes] = detail::kNf4Level<kCodes>) : void()), ...);
}

template <bool kWide, BlockQuantFormat kFormat, class T>
__global__ void __launch_bounds__(kThreads)
    dequantize(const std::uint8_t* quantized, const float* scales, std::int64_t block, std::int64_t n, T* x) {
  __shared__ float levels[16];  // each level in its own bank, so there are no bank conflicts
  fill(levels, std::make_integer_sequence<int, 16>());
  __syncthreads();
  const std::int64_t first = thread_index() * kDequantizedRun;
  if (first >= n) return;
  detail::dequantize_run<kWide, kFormat>(quantized, levels, scales[first / block], first, n, x);
}

template <BlockQuantFormat kFormat, class T>
void launch(const BlockQuantArgs& a, cudaStream_t queue) {
  const std::int64_t n = a.x.n_elems();
  const auto starts_at = [](const TensorView& view, std::uintptr_t multiple) {
    return reinterpret_cast<std::uintptr_t>(view.data) % multiple == 0;
  };
  const bool wide =
      starts_at(a.quantized, kDequantizedRun) && starts_at(a.x, alignof(detail::DequantizedRun<T>));
  const auto kernel = wide ? dequantize<true, kFormat, T> : dequantize<false, kFormat, T>;
  kernel<<<num_blocks(n, kThreads * kDequantizedRun), kThreads, 0, queue>>>(
      a.quantized.as<std::uint8_t>(), a.scales.as<float>(), a.block, n, a.x.as<T>());
}

}  // namespace

Status quantize_blocks(Backend&, Stream& stream, const BlockQuantArgs& a) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  const std::int64_t n = a.x.n_elems();
  if (n == 0) return Status::ok();
  return dispatch_launch(a.x.dtype, [&]<class T>(std::type_identity<T>) {
    const auto kernel = a.format == BlockQuantFormat::nf4 ? quantize<BlockQuantFormat::nf4, T>
                                                          : quantize<BlockQuantFormat::int8, T>;
    kernel<<<num_blocks(dispatch::ceil_div(n, a.block), kRowsPerBlock), kThreads, 0, queue>>>(
        a.x.as<T>(), n, a.block, a.quantized.as<std::uint8_t>(), a.scales.as<float>());
  });
}

Status dequantize_blocks(Backend&, Stream& stream, const BlockQuantArgs& a) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  if (a.x.n_elems() == 0) return Status::ok();
  return dispatch_launch(a.x.dtype, [&]<class T>(std::type_identity<T>) {
    a.format == BlockQuantFormat::nf4 ? launch<BlockQuantFormat::nf4, T>(a, queue)
                                      : launch<BlockQuantFormat::int8, T>(a, queue);
  });
}

}  // namespace strata::kernels::cuda
