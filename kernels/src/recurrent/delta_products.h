#pragma once

#include <cstdint>

/// The matrix products of the delta rule. A Unit (delta_unit.h) computes them: the sum of an element runs
/// over its terms in ascending order, with a multiplication and an addition each, so all units give the same
/// bits.
namespace strata::kernels::detail {

/// c[i, j] = keep_i c[i, j] + (the sum of a[i, l] b[l, j]); c is not read where keep_i is 0. +0 is added to
/// what is kept, so that no sum is ever -0 and terms with a = 0 change no bit: a unit may leave them out.
struct Product {
  const float* a;
  std::int64_t a_row, a_column;  ///< strides
  const float* b;
  std::int64_t b_row;
  float* c;
  std::int64_t c_row;
  std::int64_t m, n, k;
  float keep = 0;
  const float* row_keep = nullptr;  ///< keep of every row; null: `keep`
  /// Where a is 0: nowhere, above its diagonal, or below it.
  enum class Zeros : std::uint8_t { none, above, below } zeros = Zeros::none;
  bool only_lower = false;  ///< elements of c above its diagonal need not be computed
  std::int64_t first = 0;   ///< the row of the whole matrices a and c with which these begin
};

/// Solves (I + A) Y = Y for the rows [first, last) of Y [last, n], of which those before are solved already;
/// or (I + A^T) Y = Y for all rows if `transposed`. A [64, 64] is 0 on and above its diagonal.
struct UnitTriangle {
  const float* a;
  float* y;
  std::int64_t n, first, last;
  bool transposed = false;
};

}  // namespace strata::kernels::detail
