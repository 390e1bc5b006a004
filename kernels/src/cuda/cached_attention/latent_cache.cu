#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/mixers/latent_cache.h>

#include "attention/latent_rows.h"

// A thread per column, which has every gridDim.y-th position of the cache.
namespace strata::kernels::cuda {
namespace {

using dispatch::dispatch_launch;
using dispatch::kThreads;
using dispatch::row_count;
using dispatch::row_grid;
using dispatch::thread_index;

/// The rows of a call.
struct CallRows {
  const std::int32_t *positions, *slots;
  std::int64_t n = 0;
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    store_latents(const T* latent, const T* qkv, CallRows rows, T* cache, LatentHeads h, std::int64_t rank,
                  std::int64_t capacity) {
  const std::int64_t column = thread_index(), width = rank + h.rotated;
  if (column >= width) return;
  for (std::int64_t row = blockIdx.y; row < rows.n; row += gridDim.y) {
    const std::int64_t slot = rows.slots[row];
    if (slot < 0) continue;
    cache[(slot * capacity + rows.positions[row]) * width + column] =
        column < rank ? latent[row * rank + column]
                      : qkv[row * 3 * h.q_width() + h.q_width() + column - rank];
  }
}

/// Whether a row of the call can see a position. All threads of a block ask for the same one.
__device__ bool is_seen(const CallRows& rows, std::int64_t slot, std::int64_t position) {
  bool sees = false;
  for (std::int64_t r = threadIdx.x; r < rows.n; r += blockDim.x)
    sees = sees || (rows.slots[r] == slot && rows.positions[r] >= position);
  return __syncthreads_or(sees ? 1 : 0) != 0;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    gather_latents(const T* cache, CallRows rows, T* latents, std::int64_t rank, std::int64_t width,
                   std::int64_t sequences, std::int64_t capacity) {
  const std::int64_t column = thread_index();
  for (std::int64_t at = blockIdx.y; at < sequences * capacity; at += gridDim.y) {
    const bool seen = is_seen(rows, at / capacity, at % capacity);
    if (column < rank) latents[at * rank + column] = seen ? cache[at * width + column] : from_f32<T>(0.0f);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    write_keys_values(const T* kv, const T* cache, CallRows rows, T* keys, T* values, LatentHeads h,
                      std::int64_t width, std::int64_t sequences, std::int64_t capacity) {
  const std::int64_t column = thread_index(), of_part = h.q_width(), d = h.head_dim();
  for (std::int64_t at = blockIdx.y; at < sequences * capacity; at += gridDim.y) {
    const std::int64_t slot = at / capacity, position = at % capacity;
    if (!is_seen(rows, slot, position) || column >= 2 * of_part) continue;
    const std::int64_t head = column % of_part / d, i = column % d;
    T* const into = column < of_part ? keys : values;
    // The columns behind those of the queries.
    into[((slot * h.heads + head) * capacity + position) * d + i] = detail::latent_qkv_element<T>(
        h, nullptr, kv + at * h.kv_width(), cache + at * width + width - h.rotated, of_part + column);
  }
}

template <class Args>
CallRows rows_of(const Args& a) {
  return {a.positions.template as<std::int32_t>(), a.slots.template as<std::int32_t>(),
          a.positions.n_elems()};
}

}  // namespace

Status cached_latents(Backend&, Stream& stream, const CachedLatentsArgs& a) {
  const std::int64_t rank = dispatch::row_length(a.latent), width = a.cache.shape.dim(2),
                     sequences = a.cache.shape.dim(0), capacity = a.cache.shape.dim(1);
  const CallRows rows = rows_of(a);
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  if (rows.n > 0)
    STRATA_TRY(dispatch_launch(a.latent.dtype, [&]<class T>(std::type_identity<T>) {
      store_latents<<<row_grid(rows.n, width), kThreads, 0, queue>>>(
          a.latent.as<T>(), a.qkv.as<T>(), rows, a.cache.as<T>(), a.heads, rank, capacity);
    }));
  return dispatch_launch(a.latent.dtype, [&]<class T>(std::type_identity<T>) {
    gather_latents<<<row_grid(sequences * capacity, rank), kThreads, 0, queue>>>(
        a.cache.as<T>(), rows, a.latents.as<T>(), rank, width, sequences, capacity);
  });
}

Status latent_keys_values(Backend&, Stream& stream, const LatentKeysValuesArgs& a) {
  const std::int64_t sequences = a.cache.shape.dim(0), capacity = a.cache.shape.dim(1);
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch_launch(a.kv.dtype, [&]<class T>(std::type_identity<T>) {
    write_keys_values<<<row_grid(sequences * capacity, 2 * a.heads.q_width()), kThreads, 0, queue>>>(
        a.kv.as<T>(), a.cache.as<T>(), rows_of(a), a.keys.as<T>(), a.values.as<T>(), a.heads,
        a.cache.shape.dim(2), sequences, capacity);
  });
}

}  // namespace strata::kernels::cuda
