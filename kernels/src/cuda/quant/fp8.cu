#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/fp8.h>

#include "cuda/quant/fp8_math.h"

// First the amax of an operand, then its cast, tile by tile.
namespace strata::kernels::cuda {
namespace {

using detail::Fp8Format;
using detail::Fp8Tile;
using detail::kFp8Threads;
using detail::kFp8Tile;
using detail::kFp8TileBytes;
using dispatch::dispatch_launch;
using dispatch::kThreads;
using dispatch::num_blocks;
using dispatch::thread_index;

constexpr std::int64_t kElementsPerThread = 16;

// A maximum does not depend on the order of the blocks.
template <class T>
__global__ void __launch_bounds__(kThreads) reduce_amax(const T* x, std::int64_t n, std::uint32_t* amax) {
  std::uint32_t here = 0;
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = thread_index(); i < n; i += step)
    here = max(here, detail::magnitude_bits(to_f32(x[i])));
  here = __reduce_max_sync(0xFFFFFFFFu, here);
  if (threadIdx.x % 32 == 0) atomicMax(amax, here);
}

template <class T>
__global__ void __launch_bounds__(kFp8Threads)
    cast_tiles(const T* x, std::int64_t rows, std::int64_t columns, const std::uint32_t* amax,
               Fp8Format format, std::uint8_t* by_rows, std::uint8_t* by_columns, float* inverse) {
  __shared__ alignas(16) std::uint8_t tile[kFp8TileBytes];
  const auto scale = detail::fp8_scale(format, *amax);
  const Fp8Tile at{std::int64_t{blockIdx.y} * kFp8Tile, std::int64_t{blockIdx.x} * kFp8Tile, rows, columns};
  detail::cast_tile(static_cast<int>(threadIdx.x), at, x, scale.scale, format, by_rows, tile);
  if (by_columns != nullptr) {
    __syncthreads();
    detail::store_transposed(static_cast<int>(threadIdx.x), at, tile, by_columns);
  }
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *inverse = scale.inverse;
}

}  // namespace

Status fp8_cast(Backend&, Stream& stream, const Fp8CastArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.x), columns = dispatch::row_length(a.x), n = rows * columns;
  const bool by_rows = dispatch::is_present(a.rowwise), by_columns = dispatch::is_present(a.columnwise);
  const Fp8Format format =
      (by_rows ? a.rowwise : a.columnwise).dtype == DType::e4m3 ? Fp8Format::e4m3 : Fp8Format::e5m2;
  auto* amax = reinterpret_cast<std::uint32_t*>(a.workspace.data);
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  if (n == 0) return Status::ok();
  STRATA_CUDA_TRY(cudaMemsetAsync(amax, 0, sizeof *amax, queue));
  const dim3 tiles{num_blocks(columns, kFp8Tile), num_blocks(rows, kFp8Tile)};
  return dispatch_launch(a.x.dtype, [&]<class T>(std::type_identity<T>) {
    reduce_amax<<<num_blocks(n, kThreads * kElementsPerThread), kThreads, 0, queue>>>(a.x.as<T>(), n, amax);
    cast_tiles<<<tiles, kFp8Threads, 0, queue>>>(
        a.x.as<T>(), rows, columns, amax, format, by_rows ? a.rowwise.as<std::uint8_t>() : nullptr,
        by_columns ? a.columnwise.as<std::uint8_t>() : nullptr, a.scale_inv.as<float>());
  });
}

}  // namespace strata::kernels::cuda
