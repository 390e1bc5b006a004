#pragma once

#include <cstdint>

#include <strata/dispatch/check.h>
#include <strata/dispatch/rows.h>

/// The checks of layer norm and RMSNorm. Layer norm also has a mean and a bias.
namespace strata::kernels::detail {

template <class Args>
inline constexpr bool kHasMean = requires(const Args& a) {
  a.mean;
};

template <class Args>
dispatch::Check check_norm_forward(const char* op, const Args& a) {
  const std::int64_t rows = dispatch::row_count(a.x), h = dispatch::row_length(a.x);
  dispatch::Check check(op, "x", a.x);
  check.rows("x", a.x, rows, h).shape("weight", a.weight, a.x.dtype, {h});
  if constexpr (kHasMean<Args>) check.shape("bias", a.bias, a.x.dtype, {h});
  check.rows("y", a.y, rows, h);
  if constexpr (kHasMean<Args>) check.elements("mean", a.mean, DType::f32, rows);
  check.elements("rstd", a.rstd, DType::f32, rows)
      .optional_rows("added", a.added, rows, h)
      .optional_rows("sum", a.sum, rows, h)
      .require(dispatch::is_present(a.added) == dispatch::is_present(a.sum),
               "added and sum must be given together")
      .require(h >= 1 && a.eps >= 0.0f, "rows have ", h, " elements and eps is ", a.eps,
               "; rows need at least 1 element, and eps must be 0 or more");
  return check;
}

template <class Args>
dispatch::Check check_norm_backward(const char* op, const Args& a, std::size_t workspace_bytes) {
  const std::int64_t rows = dispatch::row_count(a.x), h = dispatch::row_length(a.x);
  dispatch::Check check(op, "x", a.x);
  check.rows("x", a.x, rows, h).shape("weight", a.weight, a.x.dtype, {h});
  if constexpr (kHasMean<Args>) check.elements("mean", a.mean, DType::f32, rows);
  check.elements("rstd", a.rstd, DType::f32, rows)
      .rows("dy", a.dy, rows, h)
      .rows("dx", a.dx, rows, h)
      .gradient("dweight", a.dweight, {h}, a.accumulate_dweight);
  if constexpr (kHasMean<Args>) check.gradient("dbias", a.dbias, {h}, a.accumulate_dbias);
  check.optional_rows("residual", a.residual, rows, h)
      .require(h >= 1, "x has rows of 0 elements")
      .workspace(a.workspace, workspace_bytes);
  return check;
}

}  // namespace strata::kernels::detail
