#include <algorithm>

#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/attention_heads.h>
#include <strata/kernels/cached_attention.h>

#include "attention/cached_attention_sizes.h"
#include "cuda/attention/alibi_slopes.h"
#include "cuda/cached_attention/cached_attention_blocks.h"

namespace strata::kernels::cuda {
namespace {

using detail::AlibiSlopes;
using detail::CachedBlock;
using detail::CachedView;
using dispatch::kThreads;

template <class T>
__global__ void __launch_bounds__(kThreads) store_rows(CachedView<T> v) {
  const auto i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (i >= v.kv_heads * v.d) return;
  for (std::int64_t r = blockIdx.y; r < v.rows; r += gridDim.y) detail::cached_store(v, r, i);
}

// blockIdx.y is a (row, key head) of the rows from `first` on whose scores the workspace has at once.
template <bool kPacked, class T>
__global__ void __launch_bounds__(detail::kScoreWarps * 32)
    score_keys(CachedView<T> v, AlibiSlopes slopes, float scale, std::int64_t first, float* x) {
  __shared__ detail::ScoreStage<T> stage;
  detail::KeySums sums;
  const auto kv_heads = static_cast<unsigned>(v.kv_heads);
  const std::int64_t row = blockIdx.y / kv_heads, kv_head = blockIdx.y % kv_heads;
  detail::cached_scores<kPacked>(CachedBlock<detail::kScoreWarps>(), v, scale, slopes, first + row, row,
                                 kv_head, static_cast<int>(blockIdx.z) * detail::kScoreHeads,
                                 std::int64_t{blockIdx.x} * detail::kScoreKeys, x, stage, sums);
}
// blockIdx.x is a head, blockIdx.y a row.
template <class T>
__global__ void __launch_bounds__(detail::kSoftmaxThreads)
    normalize(CachedView<T> v, float scale, std::int64_t first, float* x) {
  __shared__ detail::SoftmaxStage stage;
  const std::int64_t row = blockIdx.y, n = detail::visible_keys(v, first + row, 0).n;
  if (n > 0)
    detail::cached_softmax_block(CachedBlock<detail::kSoftmaxWarps>(), v, blockIdx.x,
                                 x + (row * v.heads + blockIdx.x) * v.capacity,
                                 v.scales_scores() ? 1.0f : scale, n, stage);
}
template <bool kPacked, class T>
__global__ void __launch_bounds__(detail::kSumThreads)
    sum_values(CachedView<T> v, std::int64_t first, const float* x) {
  __shared__ detail::SumStage<T> stage;
  const auto kv_heads = static_cast<unsigned>(v.kv_heads);
  const std::int64_t row = blockIdx.y / kv_heads, kv_head = blockIdx.y % kv_heads;
  detail::cached_weighted_sums<kPacked>(CachedBlock<detail::kSumWarps>(), v, first + row, row, kv_head,
                                        static_cast<int>(blockIdx.z) * detail::kSumHeads,
                                        static_cast<int>(blockIdx.x) * detail::SumStage<T>::kPack, x, stage);
}

template <bool kPacked, class T>
Status attend(const CachedView<T>& v, const AlibiSlopes& slopes, float scale, float* x, cudaStream_t queue) {
  const detail::CachedGrids grids = detail::cached_grids(v);
  const std::int64_t at_once = detail::cached_attention_rows_at_once(v.rows, v.heads);
  for (std::int64_t first = 0; first < v.rows; first += at_once) {
    const auto rows = static_cast<unsigned>(std::min(at_once, v.rows - first)),
               pairs = rows * static_cast<unsigned>(v.kv_heads);
    const dim3 of_scores(static_cast<unsigned>(grids.key_blocks), pairs,
                         static_cast<unsigned>(grids.score_heads)),
        of_rows(static_cast<unsigned>(v.heads), rows),
        of_sums(static_cast<unsigned>(grids.elem_blocks), pairs, static_cast<unsigned>(grids.sum_heads));
    score_keys<kPacked><<<of_scores, detail::kScoreWarps * 32, 0, queue>>>(v, slopes, scale, first, x);
    STRATA_CUDA_TRY(cudaGetLastError());
    normalize<<<of_rows, detail::kSoftmaxThreads, 0, queue>>>(v, scale, first, x);
    STRATA_CUDA_TRY(cudaGetLastError());
    sum_values<kPacked><<<of_sums, detail::kSumThreads, 0, queue>>>(v, first, x);
    STRATA_CUDA_TRY(cudaGetLastError());
  }
  return Status::ok();
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
          a.shape.softcap,
          dispatch::is_present(a.sinks) ? a.sinks.as<T>() : nullptr};
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
    if (!a.shape.is_stored) {
      store_rows<T><<<dispatch::row_grid(rows, v.kv_heads * v.d), kThreads, 0, queue>>>(v);
      STRATA_CUDA_TRY(cudaGetLastError());
    }
    const float scale = attention_scale({.scale = a.shape.scale}, v.d);
    auto* const x = reinterpret_cast<float*>(a.workspace.data);
    const bool is_packed = v.d % dispatch::Pack<T>::kSize == 0 && v.capacity % 4 == 0 &&
                           dispatch::are_pack_aligned(v.keys, v.values) && dispatch::are_pack_aligned(x);
    return is_packed ? attend<true>(v, slopes, scale, x, queue) : attend<false>(v, slopes, scale, x, queue);
  });
}

}  // namespace strata::kernels::cuda
