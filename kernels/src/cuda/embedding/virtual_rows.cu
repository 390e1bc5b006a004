#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/virtual_rows.h>

#include "embedding/virtual_rows_math.h"

// A thread computes one value.
namespace strata::kernels::cuda {
namespace {

using detail::VirtualRows;
using dispatch::dispatch_launch;
using dispatch::is_present;
using dispatch::kThreads;
using dispatch::num_blocks;
using dispatch::row_count;
using dispatch::row_length;
using dispatch::thread_index;

template <class T>
__global__ void __launch_bounds__(kThreads)
    splice(const T* x, VirtualRows<T> rows, T* y, std::int64_t n, std::int64_t seq, std::int64_t all) {
  if (const std::int64_t i = thread_index(); i < all) y[i] = detail::spliced_value(x, rows, n, seq, i);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    drop(const T* x, T* y, std::int64_t h, std::int64_t n, std::int64_t seq, std::int64_t all) {
  if (const std::int64_t i = thread_index(); i < all) y[i] = x[detail::kept_row(i / h, n, seq) * h + i % h];
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    replace(const T* x, const std::int32_t* positions, VirtualRows<T> rows, T* y, std::int64_t n,
            std::int64_t all) {
  if (const std::int64_t i = thread_index(); i < all) y[i] = detail::replaced_value(x, positions, rows, n, i);
}

template <class T, class Out>
__global__ void __launch_bounds__(kThreads)
    sum_virtual_rows(const T* dy, Out* dadded, std::int64_t h, std::int64_t columns, std::int64_t rows,
                     std::int64_t sequences, bool accumulate, std::int64_t all) {
  const std::int64_t i = thread_index();
  if (i >= all) return;
  const float sum = detail::virtual_gradient(dy, h, columns, rows, sequences, i);
  dadded[i] = from_f32<Out>(accumulate ? to_f32(dadded[i]) + sum : sum);
}

template <class T>
VirtualRows<T> virtual_rows(const TensorView& added, std::int64_t h) {
  if (!is_present(added)) return {nullptr, h, h};
  return {added.as<T>(), row_length(added), h};
}

}  // namespace

Status splice_rows(Backend&, Stream& stream, const SpliceRowsArgs& a) {
  const std::int64_t all = a.y.n_elems();
  if (all == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch_launch(a.x.dtype, [&]<class T>(std::type_identity<T>) {
    splice<<<num_blocks(all, kThreads), kThreads, 0, queue>>>(
        a.x.as<T>(), virtual_rows<T>(a.added, row_length(a.x)), a.y.as<T>(), a.n, a.seq, all);
  });
}

Status splice_rows_backward(Backend&, Stream& stream, const SpliceRowsBackwardArgs& a) {
  const std::int64_t all = a.dadded.n_elems(), rows = row_count(a.dadded) + a.seq;
  if (all == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  const auto launch = [&]<class T, class Out>(const T* dy, Out* dadded) {
    sum_virtual_rows<<<num_blocks(all, kThreads), kThreads, 0, queue>>>(
        dy, dadded, row_length(a.dy), row_length(a.dadded), rows, row_count(a.dy) / rows, a.accumulate, all);
  };
  return dispatch_launch(a.dy.dtype, [&]<class T>(std::type_identity<T>) {
    if (a.dadded.dtype == DType::f32)
      launch(a.dy.as<T>(), a.dadded.as<float>());
    else
      launch(a.dy.as<T>(), a.dadded.as<T>());
  });
}

Status drop_rows(Backend&, Stream& stream, const DropRowsArgs& a) {
  const std::int64_t all = a.y.n_elems();
  if (all == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch_launch(a.x.dtype, [&]<class T>(std::type_identity<T>) {
    drop<<<num_blocks(all, kThreads), kThreads, 0, queue>>>(a.x.as<T>(), a.y.as<T>(), row_length(a.x), a.n,
                                                            a.seq, all);
  });
}

Status replace_rows(Backend&, Stream& stream, const ReplaceRowsArgs& a) {
  const std::int64_t all = a.y.n_elems();
  if (all == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch_launch(a.x.dtype, [&]<class T>(std::type_identity<T>) {
    replace<<<num_blocks(all, kThreads), kThreads, 0, queue>>>(a.x.as<T>(), a.positions.as<std::int32_t>(),
                                                               virtual_rows<T>(a.added, row_length(a.x)),
                                                               a.y.as<T>(), row_count(a.added), all);
  });
}

}  // namespace strata::kernels::cuda
