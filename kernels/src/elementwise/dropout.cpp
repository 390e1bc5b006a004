#include <strata/kernels/adapters/dropout.h>

#include <algorithm>

#include <strata/dispatch/op.h>
#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>
#include <strata/runtime/str.h>

#include "dtype_dispatch.h"
#include "elementwise/dropout_math.h"
#include "work_split.h"

namespace strata::kernels {
STRATA_OP(dropout, DropoutArgs);

namespace {

constexpr std::int64_t kGroup = 4;

template <class T>
void drop_row(const DropoutArgs& a, std::int64_t t, std::int64_t n) {
  const T* const x = a.x.as<T>() + t * n;
  T* const y = a.y.as<T>() + t * n;
  const auto* const key = reinterpret_cast<const std::uint32_t*>(a.keys.as<std::int32_t>()) + 2 * t;
  const std::uint32_t below = detail::drop_below(a.p);
  const float factor = detail::keep_factor(a.p);
  for (std::int64_t i = 0; i < n; i += kGroup) {
    const detail::DropoutWords words =
        detail::dropout_words(key[0], key[1], static_cast<std::uint32_t>(i / kGroup), a.stream);
    for (std::int64_t j = 0; j < std::min(kGroup, n - i); ++j)
      y[i + j] = detail::dropped(x[i + j], words.word[j], below, factor);
  }
}

}  // namespace

void dropout_host(const DropoutArgs& a, ThreadPool& pool) {
  const std::int64_t n = dispatch::row_length(a.x);
  detail::dispatch_dtype(a.x.dtype, [&]<class T>(std::type_identity<T>) {
    dispatch::parallel_for_ranges(pool, dispatch::row_count(a.x), detail::rows_per_item(n),
                                  [&](std::int64_t first, std::int64_t count) {
                                    for (std::int64_t t = first; t < first + count; ++t) drop_row<T>(a, t, n);
                                  });
  });
}

Status dropout_async(Backend& backend, Stream& stream, const DropoutArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.x), n = dispatch::row_length(a.x);
  dispatch::Check check("dropout", "x", a.x);
  check.rows("x", a.x, rows, n).shape("keys", a.keys, DType::i32, {rows, 2}).rows("y", a.y, rows, n);
  STRATA_TRY(check.status());
  if (!(a.p >= 0 && a.p < 1))
    return Status::error(Code::invalid, str("dropout: a share of ", a.p, "; it must be 0 to below 1"));
  return dispatch::enqueue(backend, stream, dropout_op, a, {a.x, a.keys}, {a.y});
}

}  // namespace strata::kernels
