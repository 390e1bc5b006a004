#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/rope.h>

#include "cuda/elementwise/packs.h"
#include "cuda/row_math.h"
#include "embedding/rope_scaling.h"

namespace strata::kernels::cuda {
namespace {

using dispatch::dispatch_launch;
using dispatch::kThreads;
using dispatch::num_blocks;
using dispatch::row_grid;
using dispatch::thread_index;

__global__ void __launch_bounds__(kThreads)
    fill_positions(const std::int32_t* starts, std::int32_t* positions, std::int64_t first, std::uint32_t seq,
                   std::uint32_t n) {
  const auto t = static_cast<std::uint32_t>(thread_index());
  if (t >= n) return;
  const auto position = static_cast<std::int32_t>(first + t % seq);
  positions[t] = starts == nullptr ? position : position - starts[t];
}

// Sines, cosines and powers are computed by the device's f64 functions and rounded to f32.
__device__ float frequency(const RopeFrequencies& f, std::int64_t i, std::int64_t n) {
  return detail::scaled_frequency(
      f,
      static_cast<float>(pow(static_cast<double>(f.theta), -static_cast<double>(i) / static_cast<double>(n))),
      i, n);
}
__global__ void __launch_bounds__(kThreads)
    angles(float* table, RopeFrequencies frequencies, std::int64_t n, std::int64_t all) {
  const std::int64_t i = thread_index();
  if (i >= all) return;
  const std::int64_t position = i / n, pair = i % n;
  const float angle = static_cast<float>(position) * frequency(frequencies, pair, n);
  table[position * 2 * n + pair] =
      static_cast<float>(cos(static_cast<double>(angle))) * frequencies.attention_factor;
  table[position * 2 * n + n + pair] =
      static_cast<float>(sin(static_cast<double>(angle))) * frequencies.attention_factor;
}

// The grid has the parts of a row in x, and rows in y.
template <int kN, class T>
__global__ void __launch_bounds__(kThreads)
    rotate_rows(const T* x, const std::int32_t* positions, const float* table, T* y, detail::Rotation r,
                int rows) {
  const int part = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (part >= r.row_threads<kN>()) return;
  for (int t = static_cast<int>(blockIdx.y); t < rows; t += static_cast<int>(gridDim.y)) {
    const std::int64_t at = std::int64_t{t} * r.width;
    detail::rotate_part<kN>(x + at, table + std::int64_t{positions[t]} * 2 * r.pairs, y + at, r, part);
  }
}

}  // namespace

Status positions(Backend&, Stream& stream, const PositionsArgs& a) {
  const std::int64_t n = a.positions.n_elems();
  if (n == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  fill_positions<<<num_blocks(n, kThreads), kThreads, 0, queue>>>(
      dispatch::is_present(a.doc_start) ? a.doc_start.as<std::int32_t>() : nullptr,
      a.positions.as<std::int32_t>(), a.first, static_cast<std::uint32_t>(a.seq),
      static_cast<std::uint32_t>(n));
  STRATA_CUDA_TRY(cudaGetLastError());
  return Status::ok();
}

Status rope_table(Backend&, Stream& stream, const RopeTableArgs& a) {
  const std::int64_t n = dispatch::row_length(a.table) / 2, all = dispatch::row_count(a.table) * n;
  if (all == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  angles<<<num_blocks(all, kThreads), kThreads, 0, queue>>>(a.table.as<float>(), a.frequencies, n, all);
  STRATA_CUDA_TRY(cudaGetLastError());
  return Status::ok();
}

Status rope(Backend&, Stream& stream, const RopeArgs& a) {
  const auto rows = static_cast<int>(dispatch::row_count(a.x));
  const detail::Rotation r = {.width = static_cast<int>(dispatch::row_length(a.x)),
                              .heads = static_cast<int>(a.heads),
                              .head_dim = static_cast<int>(a.head_dim),
                              .pairs = static_cast<int>(dispatch::row_length(a.table) / 2),
                              .interleaved = a.interleaved,
                              .inverse = a.inverse,
                              .copies = a.x.data != a.y.data};
  if (rows == 0 || r.row_threads<1>() == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch_launch(a.x.dtype, [&]<class T>(std::type_identity<T>) {
    constexpr int kSize = detail::Pack<T>::kSize;
    const T* const from = a.x.as<T>();
    T* const into = a.y.as<T>();
    const auto* const positions = a.positions.as<std::int32_t>();
    const auto* const table = a.table.as<float>();
    if (r.divides<kSize>() && detail::are_pack_aligned(from, into))
      rotate_rows<kSize><<<row_grid(rows, r.row_threads<kSize>()), kThreads, 0, queue>>>(
          from, positions, table, into, r, rows);
    else
      rotate_rows<1>
          <<<row_grid(rows, r.row_threads<1>()), kThreads, 0, queue>>>(from, positions, table, into, r, rows);
  });
}

}  // namespace strata::kernels::cuda
