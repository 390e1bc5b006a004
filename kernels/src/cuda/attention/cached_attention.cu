#include <strata/dispatch/cuda/lanes.h>
#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/attention_heads.h>
#include <strata/kernels/cached_attention.h>

#include "cached_attention_table.h"
#include "cuda/attention/alibi_slopes.h"
#include "cuda/attention/cached_attention_math.h"

namespace strata::kernels::cuda {
namespace {

using detail::AlibiSlopes;
using detail::CachedView;
using dispatch::HalfWarp;
using dispatch::kLanes;
using dispatch::kThreads;

template <class T>
__global__ void __launch_bounds__(kThreads) store_rows(CachedView<T> v) {
  const std::int64_t i = dispatch::thread_index(), n = v.kv_heads * v.d;
  if (i < v.rows * n) detail::cached_store(v, i / n, i % n);
}

// A block loops over (row, key head) pairs and keeps a row of scores in its slot of the workspace. A half
// warp computes the score of a key, then one half warp the softmax, then each thread elements of the output.
template <class T>
__global__ void __launch_bounds__(kThreads)
    attend(CachedView<T> v, AlibiSlopes slopes, float scale, float* scratch, std::int64_t floats) {
  const std::int64_t group = v.heads / v.kv_heads;
  const int half_warp = static_cast<int>(threadIdx.x) / kLanes;
  const HalfWarp lanes;
  float* const x = scratch + blockIdx.x * floats;
  for (std::int64_t pair = blockIdx.x; pair < v.rows * v.kv_heads; pair += gridDim.x) {
    const std::int64_t r = pair / v.kv_heads, kv = pair % v.kv_heads, slot = v.slots[r];
    T* const out = v.out + (r * v.heads + kv * group) * v.d;
    if (slot < 0) {
      for (std::int64_t i = threadIdx.x; i < group * v.d; i += kThreads) out[i] = from_f32<T>(0.0f);
      continue;
    }
    const std::int64_t all = std::int64_t{v.positions[r]} + 1, first_visible = v.first_visible(all),
                       n = all - first_visible;
    const std::int64_t cache = v.cache_of(slot, kv) + first_visible * v.d;
    for (std::int64_t head = 0; head < group; ++head) {
      const T* const query = v.qkv + r * v.width() + (kv * group + head) * v.d;
      for (std::int64_t j = half_warp; j < n; j += kThreads / kLanes) {
        const float score = detail::cached_score(lanes, query, v.keys + cache + j * v.d, v.d);
        if (lanes.is_leader()) x[j] = v.score(score, scale, slopes(kv * group + head), j, n);
      }
      __syncthreads();
      if (half_warp == 0) detail::cached_softmax(lanes, x, v.scales_scores() ? 1.0f : scale, n);
      __syncthreads();
      for (std::int64_t i = threadIdx.x; i < v.d; i += kThreads)
        out[head * v.d + i] = detail::cached_weighted_sum(x, v.values + cache, i, v.d, n);
      __syncthreads();  // all threads have read the scores
    }
  }
}

template <class T>
CachedView<T> view_of(const CachedAttentionArgs& a) {
  return {a.qkv.as<T>(),
          a.positions.as<std::int32_t>(),
          a.slots.as<std::int32_t>(),
          a.keys.as<T>(),
          a.values.as<T>(),
          a.out.as<T>(),
          dispatch::row_count(a.qkv),
          a.shape.heads,
          a.shape.kv_heads,
          a.keys.shape.dim(2),
          a.keys.shape.dim(3),
          a.shape.alibi,
          a.shape.window,
          a.shape.softcap};
}

}  // namespace

Status cached_attention(Backend&, Stream& stream, const CachedAttentionArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.qkv);
  if (rows == 0) return Status::ok();
  AlibiSlopes slopes{};
  STRATA_TRY(detail::compute_alibi_slopes("cached_attention",
                                          {.heads = a.shape.heads,
                                           .alibi = a.shape.alibi,
                                           .alibi_heads = a.shape.alibi_heads,
                                           .alibi_first = a.shape.alibi_first},
                                          slopes));
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch::dispatch_dtype(a.qkv.dtype, [&]<class T>(std::type_identity<T>) -> Status {
    const CachedView<T> v = view_of<T>(a);
    store_rows<T><<<dispatch::num_blocks(rows * v.kv_heads * v.d, kThreads), kThreads, 0, queue>>>(v);
    STRATA_CUDA_TRY(cudaGetLastError());
    const float scale = attention_scale({.scale = a.shape.scale}, v.d);
    attend<T><<<static_cast<unsigned>(detail::cached_attention_scratch_slots(rows, v.kv_heads)), kThreads, 0,
                queue>>>(v, slopes, scale, reinterpret_cast<float*>(a.workspace.data), v.capacity);
    STRATA_CUDA_TRY(cudaGetLastError());
    return Status::ok();
  });
}

}  // namespace strata::kernels::cuda
