#pragma once

#include <cstdint>

#include <strata/simd/math/host_device.h>
#include <strata/kernels/lora_parts.h>
#include <strata/runtime/float16.h>

/// The arithmetic of the device kernels of scale_columns on one element, and which element of m it has: the
/// operations of the host's SIMD kernels in the same order, hence their bits.
namespace strata::kernels::detail {

/// The columns of y that belong to the rows of the parts of a matrix.
struct PartColumns {
  std::int64_t first[3] = {}, end[3] = {};  ///< columns of each part
  std::int64_t at[3] = {};                  ///< row of all parts with which it begins
  int n = 0;
  std::int64_t rows = 0;

  /// The row of all parts that the column belongs to, or -1.
  STRATA_HD std::int64_t row_of(std::int64_t column) const {
    for (int part = 0; part < n; ++part)
      if (column >= first[part] && column < end[part]) return at[part] + column - first[part];
    return -1;
  }
  STRATA_HD std::int64_t column_of(std::int64_t row) const {
    int part = 0;
    while (part + 1 < n && row >= at[part + 1]) ++part;
    return first[part] + row - at[part];
  }
};
inline PartColumns part_columns(const LoraParts& parts) noexcept {
  PartColumns columns;
  for (const LoraPart& part : parts.all()) {
    columns.first[columns.n] = part.first_row;
    columns.end[columns.n] = part.first_row + part.rows;
    columns.at[columns.n++] = columns.rows;
    columns.rows += part.rows;
  }
  return columns;
}

/// x / norm, and zero where norm is. A norm that is NaN stays NaN.
STRATA_HD float over_norm(float x, float norm) { return norm > 0.0f ? x / norm : norm; }

/// Element `column` of a row of y, from that of x. `bias` may be null.
template <class T>
STRATA_HD T scaled_column(const PartColumns& columns, T x, std::int64_t column, const float* m,
                          const float* norm, const T* bias) {
  const std::int64_t row = columns.row_of(column);
  float y = to_f32(x);
  if (row >= 0) y = y * over_norm(m[row], norm[row]);
  return from_f32<T>(bias != nullptr ? y + to_f32(bias[column]) : y);
}

/// The sum of dy x of one column over the rows from `first` to `end` in order. Rows have `n` elements.
template <class T>
STRATA_HD float product_column(const T* dy, const T* x, std::int64_t column, std::int64_t n,
                               std::int64_t first, std::int64_t end) {
  float sum = 0.0f;
  for (std::int64_t t = first; t < end; ++t)
    sum = sum + to_f32(dy[t * n + column]) * to_f32(x[t * n + column]);
  return sum;
}

}  // namespace strata::kernels::detail
