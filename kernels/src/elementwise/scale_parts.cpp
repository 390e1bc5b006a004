#include <strata/kernels/mixers/scale_parts.h>

#include <algorithm>

#include <strata/dispatch/op.h>
#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>

#include "dtype_dispatch.h"
#include "simd_table.h"
#include "work_split.h"

namespace strata::kernels {
namespace {

bool are_parts(const ColumnScales& s) {
  return s.parts >= 1 && s.parts <= ColumnScales::kMost &&
         std::all_of(s.widths.begin(), s.widths.begin() + s.parts,
                     [](std::int32_t width) { return width >= 1; });
}

}  // namespace

STRATA_OP(scale_parts, ScalePartsArgs);

void scale_parts_host(const ScalePartsArgs& a, ThreadPool& pool) {
  const std::int64_t n = dispatch::row_length(a.x);
  detail::dispatch_dtype(a.x.dtype, [&]<class T>(std::type_identity<T>) {
    dispatch::parallel_for_ranges(
        pool, dispatch::row_count(a.x), detail::rows_per_item(n), [&](std::int64_t first, std::int64_t rows) {
          for (std::int64_t row = first; row < first + rows; ++row) {
            std::int64_t at = row * n;
            for (std::size_t i = 0; i < static_cast<std::size_t>(a.scales.parts); ++i) {
              detail::simd_table<T>().scale(a.x.as<T>() + at, a.y.as<T>() + at, a.scales.factors[i],
                                            a.scales.widths[i]);
              at += a.scales.widths[i];
            }
          }
        });
  });
}

Status scale_parts_async(Backend& backend, Stream& stream, const ScalePartsArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.x);
  STRATA_TRY(dispatch::Check("scale_parts", "x", a.x)
                 .require(are_parts(a.scales), "x has ", a.scales.parts, " parts; there must be 1 to ",
                          ColumnScales::kMost, ", each with a column at least")
                 .rows("x", a.x, rows, a.scales.all())
                 .rows("y", a.y, rows, a.scales.all())
                 .status());
  return dispatch::enqueue(backend, stream, scale_parts_op, a, {a.x}, {a.y});
}

}  // namespace strata::kernels
