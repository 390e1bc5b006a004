#include <strata/kernels/layernorm.h>

#include <strata/ops/op.h>
#include <strata/ops/rows.h>

#include "cuda/norm/launches.h"
#include "norm/norm_checks.h"
#include "work_split.h"

namespace strata::kernels {

Status layernorm_forward_async(Backend& backend, Stream& stream, const LayernormForwardArgs& a) {
  STRATA_TRY(detail::check_norm_forward("layernorm_forward", a).status());
  constexpr ops::OpImpl<LayernormForwardArgs> op = {"layernorm_forward", &layernorm_forward_host,
                                                    &cuda::layernorm_forward};
  return ops::enqueue(backend, stream, op, a, {a.x, a.weight, a.bias, a.added}, {a.y, a.mean, a.rstd, a.sum});
}

std::size_t layernorm_backward_workspace_bytes(std::int64_t rows, std::int64_t hidden) noexcept {
  return detail::row_sums_bytes(rows, 2 * hidden);
}

Status layernorm_backward_async(Backend& backend, Stream& stream, const LayernormBackwardArgs& a) {
  const std::size_t bytes = layernorm_backward_workspace_bytes(ops::row_count(a.x), ops::row_length(a.x));
  STRATA_TRY(detail::check_norm_backward("layernorm_backward", a, bytes).status());
  constexpr ops::OpImpl<LayernormBackwardArgs> op = {"layernorm_backward", &layernorm_backward_host,
                                                     &cuda::layernorm_backward};
  return ops::enqueue(backend, stream, op, a, {a.x, a.weight, a.mean, a.rstd, a.dy, a.residual},
                      {a.dx, a.dweight, a.dbias}, a.workspace);
}

}  // namespace strata::kernels
