#pragma once

#include <cstdint>

#include <strata/dispatch/rows.h>
#include <strata/runtime/tensor_view.h>

#include "simd_table.h"

// Rows of norms with the optional arguments `added` (forward) and `residual` (backward).
namespace strata::kernels::detail {

/// Returns row t of the tensor that a forward normalizes: x, or x + added, which is written to `sum` first.
template <class T, class Args>
const T* normed_row(const SimdTable<T>& table, const Args& a, std::int64_t t) {
  const std::int64_t h = dispatch::row_length(a.x), at = t * h;
  if (!dispatch::is_present(a.added)) return a.x.template as<T>() + at;
  T* sum = a.sum.template as<T>() + at;
  table.add(a.x.template as<T>() + at, a.added.template as<T>() + at, sum, h);
  return sum;
}

template <class T>
const T* row_or_null(const TensorView& view, std::int64_t t) {
  return dispatch::is_present(view) ? view.as<T>() + t * dispatch::row_length(view) : nullptr;
}

}  // namespace strata::kernels::detail
