#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/mixers/latent_heads.h>

#include "attention/latent_rows.h"

// A thread per column of a tensor, which has every gridDim.y-th row of it.
namespace strata::kernels::cuda {
namespace {

using dispatch::dispatch_launch;
using dispatch::kThreads;
using dispatch::row_count;
using dispatch::row_grid;
using dispatch::thread_index;

template <class T>
__global__ void __launch_bounds__(kThreads) write_latent_qkv(const T* q, const T* kv, const T* rotated_key,
                                                             T* qkv, LatentHeads h, std::int64_t rows) {
  const std::int64_t column = thread_index(), width = 3 * h.q_width();
  if (column >= width) return;
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y)
    qkv[row * width + column] = detail::latent_qkv_element<T>(
        h, q + row * h.q_width(), kv == nullptr ? nullptr : kv + row * h.kv_width(),
        rotated_key + row * h.rotated, column);
}
template <class T>
__global__ void __launch_bounds__(kThreads)
    write_latent_gradients(const T* dqkv, T* dq, T* dkv, T* drotated_key, LatentHeads h, std::int64_t rows) {
  const std::int64_t i = thread_index(), of_q = h.q_width(), of_kv = h.kv_width();
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const T* const from = dqkv + row * 3 * of_q;
    if (i < of_q)
      dq[row * of_q + i] = detail::latent_dq_element(h, from, i);
    else if (i < of_q + of_kv)
      dkv[row * of_kv + i - of_q] = detail::latent_dkv_element(h, from, i - of_q);
    else if (i < of_q + of_kv + h.rotated)
      drotated_key[row * h.rotated + i - of_q - of_kv] =
          detail::latent_drotated_element(h, from, i - of_q - of_kv);
  }
}
template <bool kTrims, class T>
__global__ void __launch_bounds__(kThreads) trim(const T* from, T* into, LatentHeads h, std::int64_t rows) {
  const std::int64_t column = thread_index(), width = kTrims ? h.out_width() : h.q_width(),
                     other = kTrims ? h.q_width() : h.out_width();
  if (column >= width) return;
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    if constexpr (kTrims)
      into[row * width + column] = detail::trimmed_element(h, from + row * other, column);
    else
      into[row * width + column] = detail::untrimmed_element(h, from + row * other, column);
  }
}

template <bool kTrims>
Status trim_heads(Stream& stream, const TensorView& from, const TensorView& into, const LatentHeads& h) {
  const std::int64_t rows = row_count(from);
  if (rows == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch_launch(from.dtype, [&]<class T>(std::type_identity<T>) {
    trim<kTrims><<<row_grid(rows, dispatch::row_length(into)), kThreads, 0, queue>>>(from.as<T>(),
                                                                                     into.as<T>(), h, rows);
  });
}

}  // namespace

Status latent_qkv_forward(Backend&, Stream& stream, const LatentQkvForwardArgs& a) {
  const std::int64_t rows = row_count(a.q);
  if (rows == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch_launch(a.q.dtype, [&]<class T>(std::type_identity<T>) {
    write_latent_qkv<<<row_grid(rows, 3 * a.heads.q_width()), kThreads, 0, queue>>>(
        a.q.as<T>(), dispatch::is_present(a.kv) ? a.kv.as<T>() : nullptr, a.rotated_key.as<T>(),
        a.qkv.as<T>(), a.heads, rows);
  });
}
Status latent_qkv_backward(Backend&, Stream& stream, const LatentQkvBackwardArgs& a) {
  const std::int64_t rows = row_count(a.dqkv);
  if (rows == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  const std::int64_t columns = a.heads.q_width() + a.heads.kv_width() + a.heads.rotated;
  return dispatch_launch(a.dqkv.dtype, [&]<class T>(std::type_identity<T>) {
    write_latent_gradients<<<row_grid(rows, columns), kThreads, 0, queue>>>(
        a.dqkv.as<T>(), a.dq.as<T>(), a.dkv.as<T>(), a.drotated_key.as<T>(), a.heads, rows);
  });
}
Status trim_heads_forward(Backend&, Stream& stream, const TrimHeadsForwardArgs& a) {
  return trim_heads<true>(stream, a.x, a.y, a.heads);
}
Status trim_heads_backward(Backend&, Stream& stream, const TrimHeadsBackwardArgs& a) {
  return trim_heads<false>(stream, a.dy, a.dx, a.heads);
}

}  // namespace strata::kernels::cuda
