#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/attention.h>

#include "attention/merge_heads.h"

// One thread per head of a row.
namespace strata::kernels::cuda {
namespace {

using dispatch::dispatch_launch;
using dispatch::kThreads;
using dispatch::num_blocks;
using dispatch::thread_index;

__global__ void __launch_bounds__(kThreads)
    merge(const float* out_a, const float* lse_a, const float* out_b, const float* lse_b, float* out,
          float* lse, std::int64_t rows, std::int64_t heads, std::int64_t queries, std::int64_t d) {
  const std::int64_t i = thread_index();
  if (i >= rows * heads) return;
  const std::int64_t stat = detail::stat_of(i / heads, i % heads, heads, queries);
  const detail::MergedWeights w = detail::merge_lse(lse_a[stat], lse_b[stat]);
  for (std::int64_t c = 0; c < d; ++c) out[i * d + c] = out_a[i * d + c] * w.a + out_b[i * d + c] * w.b;
  lse[stat] = w.lse;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    dot_heads(const float* out, const T* dout, float* delta, std::int64_t rows, std::int64_t heads,
              std::int64_t queries, std::int64_t d) {
  const std::int64_t i = thread_index();
  if (i < rows * heads)
    delta[detail::stat_of(i / heads, i % heads, heads, queries)] =
        detail::head_dot(out + i * d, dout + i * d, d);
}

}  // namespace

Status merge_attention(Backend&, Stream& stream, const MergeAttentionArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.out), n = rows * a.heads;
  if (n == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  merge<<<num_blocks(n, kThreads), kThreads, 0, queue>>>(
      a.out_a.as<float>(), a.lse_a.as<float>(), a.out_b.as<float>(), a.lse_b.as<float>(), a.out.as<float>(),
      a.lse.as<float>(), rows, a.heads, a.queries, dispatch::row_length(a.out) / a.heads);
  STRATA_CUDA_TRY(cudaGetLastError());
  return Status::ok();
}

Status attention_delta(Backend&, Stream& stream, const AttentionDeltaArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.out), n = rows * a.heads;
  if (n == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch_launch(a.dout.dtype, [&]<class T>(std::type_identity<T>) {
    dot_heads<<<num_blocks(n, kThreads), kThreads, 0, queue>>>(a.out.as<float>(), a.dout.as<T>(),
                                                               a.delta.as<float>(), rows, a.heads, a.queries,
                                                               dispatch::row_length(a.out) / a.heads);
  });
}

}  // namespace strata::kernels::cuda
