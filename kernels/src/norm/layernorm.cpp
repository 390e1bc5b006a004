#include <strata/kernels/layernorm.h>

#include "cuda_ops.h"
#include "op.h"

namespace strata::kernels {

Status layernorm_forward_async(Backend& backend, Stream& stream, const LayernormForwardArgs& a) {
  const std::int64_t rows = detail::row_count(a.x);
  const std::int64_t h = detail::row_length(a.x);
  STRATA_TRY(detail::Check("layernorm_forward", "x", a.x)
                 .rows("x", a.x, rows, h)
                 .shape("weight", a.weight, a.x.dtype, {h})
                 .shape("bias", a.bias, a.x.dtype, {h})
                 .rows("y", a.y, rows, h)
                 .elements("mean", a.mean, DType::f32, rows)
                 .elements("rstd", a.rstd, DType::f32, rows)
                 .optional_rows("added", a.added, rows, h)
                 .optional_rows("sum", a.sum, rows, h)
                 .require(detail::is_present(a.added) == detail::is_present(a.sum),
                          "added and sum must be given together")
                 .require(h >= 1 && a.eps >= 0.0f, "rows have ", h, " elements and eps is ", a.eps,
                          "; rows need at least 1 element, and eps must be 0 or more")
                 .status());
  constexpr detail::OpImpl<LayernormForwardArgs> op = {"layernorm_forward", &layernorm_forward_host,
                                                       &cuda::layernorm_forward};
  return detail::enqueue(backend, stream, op, a, {a.x, a.weight, a.bias, a.added},
                         {a.y, a.mean, a.rstd, a.sum});
}

std::size_t layernorm_backward_workspace_bytes(std::int64_t rows, std::int64_t hidden) noexcept {
  return static_cast<std::size_t>(detail::row_blocks(rows).count * 2 * hidden) * sizeof(float);
}

Status layernorm_backward_async(Backend& backend, Stream& stream, const LayernormBackwardArgs& a) {
  const std::int64_t rows = detail::row_count(a.x);
  const std::int64_t h = detail::row_length(a.x);
  STRATA_TRY(detail::Check("layernorm_backward", "x", a.x)
                 .rows("x", a.x, rows, h)
                 .shape("weight", a.weight, a.x.dtype, {h})
                 .elements("mean", a.mean, DType::f32, rows)
                 .elements("rstd", a.rstd, DType::f32, rows)
                 .rows("dy", a.dy, rows, h)
                 .rows("dx", a.dx, rows, h)
                 .gradient("dweight", a.dweight, {h}, a.accumulate_dweight)
                 .gradient("dbias", a.dbias, {h}, a.accumulate_dbias)
                 .optional_rows("residual", a.residual, rows, h)
                 .require(h >= 1, "x has rows of 0 elements")
                 .workspace(a.workspace, layernorm_backward_workspace_bytes(rows, h))
                 .status());
  constexpr detail::OpImpl<LayernormBackwardArgs> op = {"layernorm_backward", &layernorm_backward_host,
                                                        &cuda::layernorm_backward};
  return detail::enqueue(backend, stream, op, a, {a.x, a.weight, a.mean, a.rstd, a.dy, a.residual},
                         {a.dx, a.dweight, a.dbias}, a.workspace);
}

}  // namespace strata::kernels
