#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/embedding.h>

#include "cuda/embedding/row_sort.h"

// The gradient of a table row is the sum of the rows of dx of its tokens, in the order of the tokens, as on
// the host. For this the tokens are first sorted by table row, stably.
namespace strata::kernels::cuda {
namespace {

using dispatch::dispatch_launch;
using dispatch::kThreads;
using dispatch::num_blocks;
using dispatch::thread_index;

constexpr int kTile = 1024;  // tokens per iteration of the sort, and threads of its block

template <class T>
__global__ void __launch_bounds__(kThreads) gather(const std::int32_t* ids, detail::TableRows rows,
                                                   const T* table, T* x, std::int64_t n, std::int64_t h) {
  const std::int64_t i = thread_index();
  if (i >= n) return;
  const std::int64_t row = rows(ids[i / h]);
  x[i] = row < rows.count ? table[row * h + i % h] : from_f32<T>(0.0f);
}

__global__ void __launch_bounds__(kThreads) clear(std::int32_t* counts, std::int64_t n) {
  if (const std::int64_t i = thread_index(); i < n) counts[i] = 0;
}
// A sum of ones is the same in any order.
__global__ void __launch_bounds__(kThreads)
    count(const std::int32_t* ids, detail::TableRows rows, std::int32_t* counts, std::int64_t tokens) {
  if (const std::int64_t t = thread_index(); t < tokens) atomicAdd(counts + rows(ids[t]), 1);
}

__global__ void __launch_bounds__(kTile) scan_row_begins(std::int32_t* counts, std::int64_t vocab) {
  __shared__ detail::ScanSharedStorage<kTile> memory;
  detail::scan_row_begins<kTile>(detail::BlockThreads(), memory, counts, vocab);
}

__global__ void __launch_bounds__(kTile)
    sort_tokens(const std::int32_t* ids, detail::TableRows rows, std::int32_t* begin, std::int32_t* order,
                std::int64_t tokens) {
  __shared__ detail::SortSharedStorage<kTile> memory;
  detail::sort_tokens<kTile>(detail::BlockThreads(), memory, ids, rows, begin, order, tokens);
}

// blockIdx.x is a row of the table; `begin` is as sort_tokens leaves it.
template <class T, class Out>
__global__ void __launch_bounds__(kThreads)
    sum_rows(const T* dx, const std::int32_t* begin, const std::int32_t* order, Out* dtable, std::int64_t h,
             bool accumulate) {
  const std::int64_t v = blockIdx.x;
  const detail::RowRange range = detail::range_of_row(begin, v);
  if (range.from == range.to && accumulate) return;
  for (std::int64_t column = threadIdx.x; column < h; column += kThreads) {
    float sum = 0.0f;
    for (std::int32_t i = range.from; i < range.to; ++i) sum = sum + to_f32(dx[order[i] * h + column]);
    Out& out = dtable[v * h + column];
    out = from_f32<Out>(accumulate ? to_f32(out) + sum : sum);
  }
}

}  // namespace

Status embedding_forward(Backend&, Stream& stream, const EmbeddingForwardArgs& a) {
  const std::int64_t n = a.x.n_elems();
  if (n == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch_launch(a.x.dtype, [&]<class T>(std::type_identity<T>) {
    gather<<<num_blocks(n, kThreads), kThreads, 0, queue>>>(
        a.ids.as<std::int32_t>(), detail::TableRows{a.offset, a.table.shape.dim(0)}, a.table.as<T>(),
        a.x.as<T>(), n, dispatch::row_length(a.table));
  });
}

Status embedding_backward(Backend&, Stream& stream, const EmbeddingBackwardArgs& a) {
  const std::int64_t h = dispatch::row_length(a.dtable), vocab = a.dtable.shape.dim(0),
                     tokens = a.ids.n_elems();
  const auto* ids = a.ids.as<std::int32_t>();
  auto* begin = reinterpret_cast<std::int32_t*>(a.workspace.data);
  // Tokens whose row another part of the table has are sorted as those of a row `vocab`, which nobody sums.
  auto* order = begin + vocab + 2;
  const detail::TableRows table_rows{a.offset, vocab};
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  clear<<<num_blocks(vocab + 2, kThreads), kThreads, 0, queue>>>(begin, vocab + 2);
  if (tokens > 0) count<<<num_blocks(tokens, kThreads), kThreads, 0, queue>>>(ids, table_rows, begin, tokens);
  scan_row_begins<<<1, kTile, 0, queue>>>(begin, vocab + 1);
  if (tokens > 0) sort_tokens<<<1, kTile, 0, queue>>>(ids, table_rows, begin, order, tokens);
  return dispatch_launch(a.dx.dtype, [&]<class T>(std::type_identity<T>) {
    const auto rows = static_cast<unsigned>(vocab);
    if (a.dtable.dtype == DType::f32)
      sum_rows<<<rows, kThreads, 0, queue>>>(a.dx.as<T>(), begin, order, a.dtable.as<float>(), h,
                                             a.accumulate);
    else
      sum_rows<<<rows, kThreads, 0, queue>>>(a.dx.as<T>(), begin, order, a.dtable.as<T>(), h, a.accumulate);
  });
}

}  // namespace strata::kernels::cuda
