#pragma once

#include <cmath>
#include <cstdint>

#include <strata/simd/math/host_device.h>
#include <strata/dispatch/cuda/lanes.h>
#include <strata/runtime/float16.h>

#include "square_run.h"

/// The norm of one adapted row, by the host and by CUDA, with the same bits where the GEMMs have them.
/// `Lanes` is HalfWarp (lanes.h), or EmulatedHalfWarp on the host.
namespace strata::kernels::detail {

/// Operands that the rows of a panel of an adapted part have in common, and where the panel's first row is.
struct DoraRows {
  const void* w = nullptr;          ///< stored dtype [rows, columns]
  const void* a = nullptr;          ///< stored dtype [rank, columns]
  const void* b = nullptr;          ///< stored dtype [rows, rank]
  const float* products = nullptr;  ///< w A^T [rows, rank]
  const float* gram = nullptr;      ///< A A^T [rank, rank]
  float* norm = nullptr;            ///< [rows]
  std::int64_t rows = 0, rank = 0, columns = 0;
  double scale = 1;
};

template <class Lanes, class T>
STRATA_DEVICE_INLINE double square_sum(const Lanes& lanes, const T* w, std::int64_t n) {
  double total = 0;
  for (std::int64_t at = 0; at < n; at += kSquareRun) {
    const std::int64_t length = n - at < kSquareRun ? n - at : kSquareRun;
    total = total + static_cast<double>(lanes.template sum<float>(length, [&](std::int64_t i) {
              const float value = to_f32(w[at + i]);
              return value * value;
            }));
  }
  return total;
}

/// Term j of what the adapter adds to the square of the norm. `of_gram`: element j of b A A^T.
STRATA_HD double added_square(double b, double product, double of_gram, double scale) {
  return b * (2.0 * scale * product + scale * scale * of_gram);
}

template <class Lanes, class T>
STRATA_DEVICE_INLINE double added_squares(const Lanes& lanes, const DoraRows& rows, std::int64_t row) {
  const T* const b = static_cast<const T*>(rows.b) + row * rows.rank;
  const float* const products = rows.products + row * rows.rank;
  return lanes.template sum<double>(rows.rank, [&](std::int64_t j) {
    double of_gram = 0;
    for (std::int64_t k = 0; k < rows.rank; ++k)
      of_gram =
          of_gram + static_cast<double>(rows.gram[k * rows.rank + j]) * static_cast<double>(to_f32(b[k]));
    return added_square(static_cast<double>(to_f32(b[j])), static_cast<double>(products[j]), of_gram,
                        rows.scale);
  });
}

/// Element by element, for rows that the adapter nearly cancels: there the errors of sums in f32 are as large
/// as what is left. Also what makes a NaN stay one.
template <class Lanes, class T>
STRATA_DEVICE_INLINE double exact_square_sum(const Lanes& lanes, const DoraRows& rows, std::int64_t row) {
  const T* const w = static_cast<const T*>(rows.w) + row * rows.columns;
  const T *const a = static_cast<const T*>(rows.a), *const b =
                                                        static_cast<const T*>(rows.b) + row * rows.rank;
  return lanes.template sum<double>(rows.columns, [&](std::int64_t k) {
    double added = 0;
    for (std::int64_t j = 0; j < rows.rank; ++j)
      added =
          added + static_cast<double>(to_f32(b[j])) * static_cast<double>(to_f32(a[j * rows.columns + k]));
    const double value = static_cast<double>(to_f32(w[k])) + rows.scale * added;
    return value * value;
  });
}

/// `squares` is square_sum() of the row of w, `added` is added_squares().
template <class Lanes, class T>
STRATA_DEVICE_INLINE void write_norm(const Lanes& lanes, const DoraRows& rows, std::int64_t row,
                                     double squares, double added) {
  constexpr double kCancelled = 1.0 / 16;
  double total = squares + added;
  if (!(total >= kCancelled * squares)) total = exact_square_sum<Lanes, T>(lanes, rows, row);
  if (lanes.is_leader()) rows.norm[row] = static_cast<float>(sqrt(total));
}

}  // namespace strata::kernels::detail
