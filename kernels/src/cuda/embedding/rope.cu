#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/rope.h>

#include "cuda/row_math.h"
#include "embedding/rope_scaling.h"

namespace strata::kernels::cuda {
namespace {

using dispatch::dispatch_launch;
using dispatch::kThreads;
using dispatch::num_blocks;
using dispatch::thread_index;

__global__ void __launch_bounds__(kThreads)
    fill_positions(const std::int32_t* starts, std::int32_t* positions, std::int64_t first, std::int64_t seq,
                   std::int64_t n) {
  const std::int64_t t = thread_index();
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

/// Parameters that all threads of rotate_rows share.
struct RotateParams {
  std::int64_t width, heads, head_dim, pairs;
  bool interleaved, inverse, copies;
};
// A thread rotates one pair of a head or copies one element: each head has `parts` threads, the rest of the
// row has one thread per element.
template <class T>
__global__ void __launch_bounds__(kThreads)
    rotate_rows(const T* x, const std::int32_t* positions, const float* table, T* y, RotateParams a,
                std::int64_t rows) {
  const std::int64_t passthrough = a.head_dim - 2 * a.pairs, parts = a.pairs + passthrough;
  const std::int64_t rest = a.width - a.heads * a.head_dim, of_row = a.heads * parts + rest;
  const std::int64_t i = thread_index();
  if (i >= rows * of_row) return;
  const std::int64_t t = i / of_row, at = i % of_row;
  const T* from = x + t * a.width;
  T* into = y + t * a.width;
  if (at >= a.heads * parts) {
    const std::int64_t e = a.heads * a.head_dim + at - a.heads * parts;
    if (a.copies) into[e] = from[e];
    return;
  }
  const std::int64_t head = at / parts * a.head_dim, part = at % parts;
  if (part >= a.pairs) {
    const std::int64_t e = head + a.pairs + part;
    if (a.copies) into[e] = from[e];
    return;
  }
  const float* cosines = table + positions[t] * 2 * a.pairs;
  const float sine = cosines[a.pairs + part];
  const std::int64_t first = head + (a.interleaved ? 2 * part : part),
                     second = first + (a.interleaved ? 1 : a.pairs);
  const auto pair = detail::rotate(from[first], from[second], cosines[part], a.inverse ? -sine : sine);
  into[first] = pair.first;
  into[second] = pair.second;
}

}  // namespace

Status positions(Backend&, Stream& stream, const PositionsArgs& a) {
  const std::int64_t n = a.positions.n_elems();
  if (n == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  fill_positions<<<num_blocks(n, kThreads), kThreads, 0, queue>>>(
      dispatch::is_present(a.doc_start) ? a.doc_start.as<std::int32_t>() : nullptr,
      a.positions.as<std::int32_t>(), a.first, a.seq, n);
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
  const std::int64_t rows = dispatch::row_count(a.x), width = dispatch::row_length(a.x);
  const std::int64_t pairs = dispatch::row_length(a.table) / 2;
  const std::int64_t all = rows * (width - a.heads * pairs);
  if (all == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch_launch(a.x.dtype, [&]<class T>(std::type_identity<T>) {
    rotate_rows<<<num_blocks(all, kThreads), kThreads, 0, queue>>>(
        a.x.as<T>(), a.positions.as<std::int32_t>(), a.table.as<float>(), a.y.as<T>(),
        RotateParams{width, a.heads, a.head_dim, pairs, a.interleaved, a.inverse, a.x.data != a.y.data},
        rows);
  });
}

}  // namespace strata::kernels::cuda
