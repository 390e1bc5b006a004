#pragma once

#include <cstdint>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

/// Which columns of a matrix belong to two others: `groups` times `first` columns of the one and then
/// `second` of the other, and at last `tail` columns of the first. A projection to queries with a gate for
/// each head is so, and one to several things that a layer computes with.
struct DividedColumns {
  std::int64_t groups = 1;
  std::int64_t first = 0, second = 0;
  std::int64_t tail = 0;

  constexpr std::int64_t of_first() const noexcept { return groups * first + tail; }
  constexpr std::int64_t of_second() const noexcept { return groups * second; }
  constexpr std::int64_t all() const noexcept { return of_first() + of_second(); }
  friend bool operator==(const DividedColumns&, const DividedColumns&) = default;
};

/// Copies the columns of a matrix to two others. All have the same dtype (f32, bf16 or f16; see embedding.h)
/// and do not overlap.
struct DivideColumnsArgs {
  TensorView x;       ///< [..., all], T rows
  TensorView first;   ///< [..., of_first], T rows, written
  TensorView second;  ///< [..., of_second], T rows, written
  DividedColumns columns;
};
Status divide_columns_async(Backend& backend, Stream& stream, const DivideColumnsArgs& args);
void divide_columns_host(const DivideColumnsArgs& args, ThreadPool& pool);

/// The inverse.
struct UniteColumnsArgs {
  TensorView first;   ///< [..., of_first], T rows
  TensorView second;  ///< [..., of_second], T rows
  TensorView x;       ///< [..., all], T rows, written
  DividedColumns columns;
};
Status unite_columns_async(Backend& backend, Stream& stream, const UniteColumnsArgs& args);
void unite_columns_host(const UniteColumnsArgs& args, ThreadPool& pool);

}  // namespace strata::kernels
