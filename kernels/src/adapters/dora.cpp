#include <algorithm>
#include <vector>

#include <strata/simd/convert.h>
#include <strata/dispatch/cuda/emulation/half_warp.h>
#include <strata/dispatch/op.h>
#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/dora.h>

#include "dtype_dispatch.h"
#include "adapters/dora_panels.h"
#include "gemm/gemm_tiled.h"
#include "adapters/lora_parts_check.h"
#include "simd_table.h"
#include "work_split.h"

namespace strata::kernels {
STRATA_OP(dora_norm, DoraNormArgs);

namespace {

using detail::DoraRows;
using dispatch::EmulatedHalfWarp;
using dispatch::kLanes;

// The bits of detail::added_squares(), sixteen elements of b A A^T at a time.
template <class T>
double added_squares_host(const DoraRows& rows, std::int64_t row) {
  const T* const b = static_cast<const T*>(rows.b) + row * rows.rank;
  double lanes[kLanes] = {};
  for (std::int64_t first = 0; first < rows.rank; first += kLanes) {
    const std::int64_t n = std::min<std::int64_t>(kLanes, rows.rank - first);
    double of_gram[kLanes] = {};
    for (std::int64_t k = 0; k < rows.rank; ++k) {
      const float* const gram = rows.gram + k * rows.rank + first;
      const auto factor = static_cast<double>(to_f32(b[k]));
      for (std::int64_t j = 0; j < n; ++j) of_gram[j] = of_gram[j] + static_cast<double>(gram[j]) * factor;
    }
    for (std::int64_t j = 0; j < n; ++j)
      lanes[j] =
          lanes[j] + detail::added_square(static_cast<double>(to_f32(b[first + j])),
                                          static_cast<double>(rows.products[row * rows.rank + first + j]),
                                          of_gram[j], rows.scale);
  }
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) lanes[i] = lanes[i] + lanes[i + width];
  return lanes[0];
}

template <class T>
void write_norms(const DoraRows& rows, ThreadPool& pool) {
  const detail::SimdTable<T>& table = detail::simd_table<T>();
  dispatch::parallel_for_ranges(
      pool, rows.rows, detail::rows_per_item(rows.columns), [&](std::int64_t first, std::int64_t n) {
        for (std::int64_t row = first; row < first + n; ++row)
          detail::write_norm<EmulatedHalfWarp, T>(
              {}, rows, row,
              table.square_sum(static_cast<const T*>(rows.w) + row * rows.columns, rows.columns),
              added_squares_host<T>(rows, row));
      });
}

struct HostSteps {
  const DoraNormArgs& args;
  ThreadPool& pool;

  Status multiply(const detail::Gemm& gemm) const {
    detail::gemm_tiled(gemm, nullptr, pool);
    return {};
  }
  Status dequantize(const detail::Panel& panel, std::byte* out) const {
    detail::dequantize_panel(args.matrix, args.w.data, panel, args.a.dtype, out, pool);
    return {};
  }
  Status write_norms(const DoraRows& rows) const {
    detail::dispatch_dtype(args.a.dtype,
                           [&]<class T>(std::type_identity<T>) { kernels::write_norms<T>(rows, pool); });
    return {};
  }
};

}  // namespace

void dora_norm_host(const DoraNormArgs& a, ThreadPool& pool) {
  (void)detail::for_each_dora_panel(a, HostSteps{a, pool});
}

std::size_t dora_norm_workspace_bytes(const LoraParts& parts, std::int64_t columns,
                                      const QuantizedMatrix& matrix, DType dtype) noexcept {
  return detail::dora_workspace(parts, columns, matrix, dtype, nullptr).bytes;
}

Status dora_norm_async(Backend& backend, Stream& stream, const DoraNormArgs& a) {
  const std::int64_t columns = dispatch::row_length(a.a);
  const detail::PartSums sums = detail::sums_of(a.parts);
  dispatch::Check check("dora_norm", "a", a.a);
  if (a.matrix.format != WeightFormat::full) {
    check.shape("w", a.w, DType::u8, {a.matrix.bytes()})
        .require(a.matrix.columns == columns, "rows of w have ", a.matrix.columns, " values, those of a ",
                 columns);
    detail::check_parts(check, a.parts, a.matrix.rows());
  } else {
    check.rows("w", a.w, dispatch::row_count(a.w), columns);
    detail::check_parts(check, a.parts, dispatch::row_count(a.w));
  }
  check.shape("a", a.a, a.a.dtype, {sums.ranks, columns})
      .elements("b", a.b, a.a.dtype, sums.elems)
      .shape("norm", a.norm, DType::f32, {sums.rows})
      .workspace(a.workspace, dora_norm_workspace_bytes(a.parts, columns, a.matrix, a.a.dtype));
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, dora_norm_op, a, {a.w, a.a, a.b}, {a.norm}, a.workspace);
}

void row_norms(std::span<const float> values, std::int64_t columns, DType dtype, std::span<float> norms,
               ThreadPool& pool) {
  const auto rows = std::ssize(norms);
  detail::dispatch_dtype(dtype, [&]<class T>(std::type_identity<T>) {
    dispatch::parallel_for_ranges(
        pool, rows, detail::rows_per_item(columns), [&](std::int64_t first, std::int64_t n) {
          std::vector<T> row(static_cast<std::size_t>(columns));
          for (std::int64_t i = first; i < first + n; ++i) {
            simd::narrow(values.data() + i * columns, row.data(), columns);
            norms[static_cast<std::size_t>(i)] =
                static_cast<float>(std::sqrt(detail::simd_table<T>().square_sum(row.data(), columns)));
          }
        });
  });
}

}  // namespace strata::kernels
