#pragma once

#include <cstdint>

#include <strata/simd/math/host_device.h>
#include <strata/runtime/float16.h>

// Which row and which value each element of the ops of virtual_rows.h is, on host and device.

namespace strata::kernels::detail {

/// Where a row of spliced rows comes from: virtual row `row`, or row `row` of x.
struct SplicedRow {
  bool is_virtual = false;
  std::int64_t row = 0;
};
STRATA_HD SplicedRow spliced_row(std::int64_t row, std::int64_t n, std::int64_t seq) {
  const std::int64_t sequence = row / (n + seq), at = row % (n + seq);
  if (at < n) return {true, at};
  return {false, sequence * seq + at - n};
}
/// The row among spliced rows of row `row` without the virtual ones.
STRATA_HD std::int64_t kept_row(std::int64_t row, std::int64_t n, std::int64_t seq) {
  return row + (row / seq + 1) * n;
}

/// Rows of `h` values and virtual rows of the last `columns` of them; `added` may be null: zeros.
template <class T>
struct VirtualRows {
  const T* added;
  std::int64_t columns, h;
  STRATA_HD T at(std::int64_t row, std::int64_t column) const {
    const std::int64_t own = column - (h - columns);
    if (added == nullptr || own < 0) return T{};
    return added[row * columns + own];
  }
};

/// Element `i` of splice_rows' y.
template <class T>
STRATA_HD T spliced_value(const T* x, const VirtualRows<T>& rows, std::int64_t n, std::int64_t seq,
                          std::int64_t i) {
  const SplicedRow from = spliced_row(i / rows.h, n, seq);
  const std::int64_t column = i % rows.h;
  return from.is_virtual ? rows.at(from.row, column) : x[from.row * rows.h + column];
}
/// Element `i` of replace_rows' y.
template <class T>
STRATA_HD T replaced_value(const T* x, const std::int32_t* positions, const VirtualRows<T>& rows,
                           std::int64_t n, std::int64_t i) {
  const std::int64_t position = positions[i / rows.h], column = i % rows.h;
  return position < n && column >= rows.h - rows.columns ? rows.at(position, column) : x[i];
}
/// Element `i` of the sum over `sequences` of dy's virtual rows.
template <class T>
STRATA_HD float virtual_gradient(const T* dy, std::int64_t h, std::int64_t columns,
                                 std::int64_t rows_of_sequence, std::int64_t sequences, std::int64_t i) {
  const T* from = dy + i / columns * h + (h - columns) + i % columns;
  float sum = 0.0f;
  for (std::int64_t s = 0; s < sequences; ++s) sum = sum + to_f32(from[s * rows_of_sequence * h]);
  return sum;
}

}  // namespace strata::kernels::detail
