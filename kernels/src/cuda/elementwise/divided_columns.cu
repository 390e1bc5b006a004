#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/cuda/packs.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/mixers/divided_columns.h>

#include "elementwise/column_place.h"

// A thread copies a pack of 16 bytes of a row, or one element where runs of columns or addresses are not
// aligned so. Sizes of a call are in elements of that kind.
namespace strata::kernels::cuda {
namespace {

using dispatch::kThreads;
using dispatch::Pack;
using dispatch::thread_index;

template <bool kUnites, class E>
__global__ void __launch_bounds__(kThreads)
    copy_columns(E* x, E* first, E* second, DividedColumns columns, std::int64_t rows) {
  const std::int64_t column = thread_index();
  if (column >= columns.all()) return;
  const detail::ColumnPlace place = detail::place_of(columns, column);
  const std::int64_t width = place.is_second ? columns.of_second() : columns.of_first();
  E* const part = (place.is_second ? second : first) + place.column;
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    E *const there = x + row * columns.all() + column, *const here = part + row * width;
    if constexpr (kUnites)
      *there = *here;
    else
      *here = *there;
  }
}

template <bool kUnites>
Status copy(Stream& stream, const TensorView& x, const TensorView& first, const TensorView& second,
            const DividedColumns& c) {
  if (x.n_elems() == 0) return Status::ok();
  const std::int64_t rows = dispatch::row_count(x);
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch::dispatch_launch(x.dtype, [&]<class T>(std::type_identity<T>) {
    constexpr std::int64_t kSize = Pack<T>::kSize;
    const bool aligned = dispatch::are_pack_aligned(x.as<T>(), first.as<T>(), second.as<T>());
    if (aligned && c.first % kSize == 0 && c.second % kSize == 0 && c.tail % kSize == 0) {
      const DividedColumns packs = {c.groups, c.first / kSize, c.second / kSize, c.tail / kSize};
      copy_columns<kUnites><<<dispatch::row_grid(rows, packs.all()), kThreads, 0, queue>>>(
          reinterpret_cast<uint4*>(x.data), reinterpret_cast<uint4*>(first.data),
          reinterpret_cast<uint4*>(second.data), packs, rows);
    } else {
      copy_columns<kUnites><<<dispatch::row_grid(rows, c.all()), kThreads, 0, queue>>>(
          x.as<T>(), first.as<T>(), second.as<T>(), c, rows);
    }
  });
}

}  // namespace

Status divide_columns(Backend&, Stream& stream, const DivideColumnsArgs& a) {
  return copy<false>(stream, a.x, a.first, a.second, a.columns);
}
Status unite_columns(Backend&, Stream& stream, const UniteColumnsArgs& a) {
  return copy<true>(stream, a.x, a.first, a.second, a.columns);
}

}  // namespace strata::kernels::cuda
