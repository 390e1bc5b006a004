#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/adapters/dropout.h>

#include "elementwise/dropout_math.h"

// One thread per four elements of a row, whose random bits are one result of Philox.
namespace strata::kernels::cuda {
namespace {

using dispatch::dispatch_launch;
using dispatch::kThreads;
using dispatch::num_blocks;
using dispatch::thread_index;

template <class T>
__global__ void __launch_bounds__(kThreads)
    drop_rows_of(const T* x, const std::uint32_t* keys, T* y, std::int64_t rows, std::int64_t n,
                 std::int64_t groups, std::uint32_t below, float factor, std::uint32_t stream) {
  const std::int64_t i = thread_index();
  if (i >= rows * groups) return;
  const std::int64_t row = i / groups, group = i % groups;
  const detail::DropoutWords words =
      detail::dropout_words(keys[2 * row], keys[2 * row + 1], static_cast<std::uint32_t>(group), stream);
  for (std::int64_t j = 0; j < 4 && 4 * group + j < n; ++j) {
    const std::int64_t at = row * n + 4 * group + j;
    y[at] = detail::dropped(x[at], words.word[j], below, factor);
  }
}

}  // namespace

Status dropout(Backend&, Stream& stream, const DropoutArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.x), n = dispatch::row_length(a.x), groups = (n + 3) / 4;
  if (a.x.n_elems() == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch_launch(a.x.dtype, [&]<class T>(std::type_identity<T>) {
    drop_rows_of<<<num_blocks(rows * groups, kThreads), kThreads, 0, queue>>>(
        a.x.as<T>(), reinterpret_cast<const std::uint32_t*>(a.keys.as<std::int32_t>()), a.y.as<T>(), rows, n,
        groups, detail::drop_below(a.p), detail::keep_factor(a.p), a.stream);
  });
}

}  // namespace strata::kernels::cuda
