#include <strata/kernels/fp8.h>

#include <strata/ops/op.h>
#include <strata/ops/rows.h>

#include "cuda/quant/launches.h"

namespace strata::kernels {
namespace {

bool is_f8(DType dtype) { return dtype == DType::e4m3 || dtype == DType::e5m2; }
bool fits(std::int64_t n) { return n % kFp8Multiple == 0; }

}  // namespace

std::size_t fp8_cast_workspace_bytes() noexcept { return sizeof(std::uint32_t); }

Status fp8_cast_async(Backend& backend, Stream& stream, const Fp8CastArgs& a) {
  const std::int64_t rows = ops::row_count(a.x), k = ops::row_length(a.x);
  const bool has_rowwise = ops::is_present(a.rowwise), has_columnwise = ops::is_present(a.columnwise);
  const DType dtype = has_rowwise ? a.rowwise.dtype : a.columnwise.dtype;
  ops::Check check("fp8_cast", "x", a.x);
  check.shape("x", a.x, a.x.dtype, {rows, k})
      .require(fits(rows) && fits(k), "x is [", rows, ", ", k, "]; both extents must be multiples of ",
               kFp8Multiple)
      .require(has_rowwise || has_columnwise,
               "neither rowwise nor columnwise is given; at least one is needed")
      .require(is_f8(dtype), "the output's dtype is ", to_string(dtype), "; it must be e4m3 or e5m2")
      .elements("scale_inv", a.scale_inv, DType::f32, 1)
      .workspace(a.workspace, fp8_cast_workspace_bytes());
  if (has_rowwise) check.shape("rowwise", a.rowwise, dtype, {rows, k});
  if (has_columnwise) check.shape("columnwise", a.columnwise, dtype, {k, rows});
  STRATA_TRY(check.status());
  constexpr ops::OpImpl<Fp8CastArgs> op = {"fp8_cast", &fp8_cast_host, &cuda::fp8_cast};
  return ops::enqueue(backend, stream, op, a, {a.x}, {a.rowwise, a.columnwise, a.scale_inv}, a.workspace);
}

Status fp8_gemm_async(Backend& backend, Stream& stream, const Fp8GemmArgs& a) {
  const std::int64_t m = ops::row_count(a.a), k = ops::row_length(a.a), n = ops::row_count(a.b);
  ops::Check check("fp8_gemm", "c", a.c);
  check.require(is_f8(a.a.dtype), "a is ", to_string(a.a.dtype), "; it must be e4m3 or e5m2")
      .shape("a", a.a, a.a.dtype, {m, k})
      .shape("b", a.b, DType::e4m3, {n, k})
      .require(fits(m) && fits(n) && fits(k), "a is [", m, ", ", k, "] and b is [", n, ", ", k,
               "]; all extents must be multiples of ", kFp8Multiple)
      .elements("a_scale_inv", a.a_scale_inv, DType::f32, 1)
      .elements("b_scale_inv", a.b_scale_inv, DType::f32, 1)
      .shape("c", a.c, a.c.dtype, {m, n});
  if (ops::is_present(a.bias))
    check.shape("bias", a.bias, a.c.dtype, {n})
        .require(a.c.dtype != DType::f32, "bias is given, but c is f32; a bias requires a bf16 or f16 c");
  STRATA_TRY(check.status());
  constexpr ops::OpImpl<Fp8GemmArgs> op = {"fp8_gemm", &fp8_gemm_host, &cuda::fp8_gemm};
  return ops::enqueue(backend, stream, op, a, {a.a, a.a_scale_inv, a.b, a.b_scale_inv, a.bias}, {a.c});
}

}  // namespace strata::kernels
