#include <strata/kernels/fp8.h>

#include "cuda_ops.h"
#include "op.h"

namespace strata::kernels {
namespace {

bool is_f8(DType dtype) { return dtype == DType::e4m3 || dtype == DType::e5m2; }
bool fits(std::int64_t n) { return n % kFp8Multiple == 0; }

}  // namespace

std::size_t fp8_cast_workspace_bytes() noexcept { return sizeof(std::uint32_t); }

Status fp8_cast_async(Backend& backend, Stream& stream, const Fp8CastArgs& a) {
  const std::int64_t rows = detail::row_count(a.x), k = detail::row_length(a.x);
  const bool by_rows = detail::is_given(a.rows), by_columns = detail::is_given(a.columns);
  const DType dtype = by_rows ? a.rows.dtype : a.columns.dtype;
  detail::Check check("fp8_cast", "x", a.x);
  check.shape("x", a.x, a.x.dtype, {rows, k})
      .that(fits(rows) && fits(k), rows, " rows of ", k, "; both must be multiples of ", kFp8Multiple)
      .that(by_rows || by_columns, "neither rows nor columns to write")
      .that(is_f8(dtype), "codes of dtype ", to_string(dtype), "; it must be e4m3 or e5m2")
      .elements("inverse", a.inverse, DType::f32, 1)
      .workspace(a.workspace, fp8_cast_workspace_bytes());
  if (by_rows) check.shape("rows", a.rows, dtype, {rows, k});
  if (by_columns) check.shape("columns", a.columns, dtype, {k, rows});
  STRATA_TRY(check.status());
  constexpr detail::Op<Fp8CastArgs> op = {"fp8_cast", &fp8_cast_host, &cuda::fp8_cast};
  return detail::queue(backend, stream, op, a, {a.x}, {a.rows, a.columns, a.inverse}, a.workspace);
}

Status fp8_product_async(Backend& backend, Stream& stream, const Fp8ProductArgs& a) {
  const std::int64_t m = detail::row_count(a.a), k = detail::row_length(a.a), n = detail::row_count(a.b);
  detail::Check check("fp8_product", "c", a.c);
  check.that(is_f8(a.a.dtype), "a is ", to_string(a.a.dtype), "; it must be e4m3 or e5m2")
      .shape("a", a.a, a.a.dtype, {m, k})
      .shape("b", a.b, DType::e4m3, {n, k})
      .that(fits(m) && fits(n) && fits(k), "[", m, ", ", k, "] by [", n, ", ", k,
            "]; all must be multiples of ", kFp8Multiple)
      .elements("a_inverse", a.a_inverse, DType::f32, 1)
      .elements("b_inverse", a.b_inverse, DType::f32, 1)
      .shape("c", a.c, a.c.dtype, {m, n});
  if (detail::is_given(a.bias))
    check.shape("bias", a.bias, a.c.dtype, {n})
        .that(a.c.dtype != DType::f32, "a bias, but c is f32; it goes with one kept in 16 bits");
  STRATA_TRY(check.status());
  constexpr detail::Op<Fp8ProductArgs> op = {"fp8_product", &fp8_product_host, &cuda::fp8_product};
  return detail::queue(backend, stream, op, a, {a.a, a.a_inverse, a.b, a.b_inverse, a.bias}, {a.c});
}

}  // namespace strata::kernels
