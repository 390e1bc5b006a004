#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/mixers/scale_parts.h>

#include "cuda/row_math.h"
#include "elementwise/column_factor.h"

// A thread for each column, and rows in y, of which a block has several if there are many.
namespace strata::kernels::cuda {
namespace {

using dispatch::kThreads;

template <class T>
__global__ void __launch_bounds__(kThreads)
    scale_columns_of_parts(const T* x, T* y, detail::PartFactors factors, std::int64_t rows, std::int64_t n) {
  const std::int64_t column = dispatch::thread_index();
  if (column >= n) return;
  const float factor = factors.of(column);
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y)
    y[row * n + column] = detail::stored_scale(x[row * n + column], factor);
}

}  // namespace

Status scale_parts(Backend&, Stream& stream, const ScalePartsArgs& a) {
  if (a.x.n_elems() == 0) return Status::ok();
  const std::int64_t rows = dispatch::row_count(a.x), n = dispatch::row_length(a.x);
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch::dispatch_launch(a.x.dtype, [&]<class T>(std::type_identity<T>) {
    scale_columns_of_parts<<<dispatch::row_grid(rows, n), kThreads, 0, queue>>>(
        a.x.as<T>(), a.y.as<T>(), detail::PartFactors(a.scales), rows, n);
  });
}

}  // namespace strata::kernels::cuda
