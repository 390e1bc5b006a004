#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/cast_rows.h>

#include "cuda/elementwise/cast_math.h"

// A thread casts eight values.
namespace strata::kernels::cuda {
namespace {

using detail::kCastVector;
using dispatch::kThreads;
using dispatch::row_count;
using dispatch::row_length;

template <bool kWide, bool kAdds, class X, class Y>
__global__ void __launch_bounds__(kThreads)
    cast_vectors(const X* x, std::int64_t x_stride, Y* y, std::int64_t y_stride, std::int64_t columns,
                 std::int64_t n_vectors) {
  if (const std::int64_t i = dispatch::thread_index(); i < n_vectors)
    detail::cast_vector<kWide, kAdds>(x, x_stride, y, y_stride, columns, i);
}

/// Whether every row is aligned for vector loads and stores.
template <class T>
bool is_wide(const TensorView& view, std::int64_t stride) {
  return reinterpret_cast<std::uintptr_t>(view.data) % alignof(detail::CastVector<T>) == 0 &&
         stride * static_cast<std::int64_t>(sizeof(T)) % alignof(detail::CastVector<T>) == 0;
}

}  // namespace

Status cast_rows(Backend&, Stream& stream, const CastRowsArgs& a) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  const std::int64_t columns = row_length(a.x),
                     n_vectors = row_count(a.x) * dispatch::ceil_div(columns, kCastVector);
  if (n_vectors == 0) return Status::ok();
  const std::int64_t x_stride = a.x_stride == 0 ? columns : a.x_stride,
                     y_stride = a.y_stride == 0 ? columns : a.y_stride;
  return dispatch::dispatch_dtype(a.x.dtype, [&]<class X>(std::type_identity<X>) {
    return dispatch::dispatch_launch(a.y.dtype, [&]<class Y>(std::type_identity<Y>) {
      const bool wide = is_wide<X>(a.x, x_stride) && is_wide<Y>(a.y, y_stride);
      const auto kernel = a.adds
                              ? (wide ? cast_vectors<true, true, X, Y> : cast_vectors<false, true, X, Y>)
                              : (wide ? cast_vectors<true, false, X, Y> : cast_vectors<false, false, X, Y>);
      kernel<<<dispatch::num_blocks(n_vectors, kThreads), kThreads, 0, queue>>>(
          a.x.as<X>(), x_stride, a.y.as<Y>(), y_stride, columns, n_vectors);
    });
  });
}

}  // namespace strata::kernels::cuda
