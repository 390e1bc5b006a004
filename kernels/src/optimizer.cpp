#include <strata/kernels/optimizer.h>

#include <strata/cpuopt/norm.h>

#include "cuda_ops.h"
#include "op.h"

namespace strata::kernels {

Status adamw_async(Backend& backend, Stream& stream, const AdamWArgs& a) {
  STRATA_TRY(cpuopt::validate(a.params));
  const std::int64_t n = a.p.n_elems();
  detail::Check check("adamw");
  check.elements("p", a.p, DType::f32, n)
      .elements("g", a.g, DType::f32, n)
      .elements("m", a.m, DType::f32, n)
      .elements("v", a.v, DType::f32, n);
  if (detail::is_given(a.grad_factor)) check.elements("grad_factor", a.grad_factor, DType::f32, 1);
  STRATA_TRY(check.status());
  constexpr detail::Op<AdamWArgs> op = {"adamw", &adamw_host, &cuda::adamw};
  return detail::queue(backend, stream, op, a, {a.g, a.grad_factor}, {a.p, a.m, a.v});
}

Status accumulate_async(Backend& backend, Stream& stream, const AccumulateArgs& a) {
  const std::int64_t n = a.acc.n_elems();
  STRATA_TRY(detail::Check("accumulate")
                 .elements("acc", a.acc, DType::f32, n)
                 .elements("g", a.g, DType::f32, n)
                 .status());
  constexpr detail::Op<AccumulateArgs> op = {"accumulate", &accumulate_host, &cuda::accumulate};
  return detail::queue(backend, stream, op, a, {a.g}, {a.acc});
}

Status square_sum_leaves_async(Backend& backend, Stream& stream, const SquareSumLeavesArgs& a) {
  STRATA_TRY(detail::Check("square_sum_leaves")
                 .elements("x", a.x, DType::f32, a.x.n_elems())
                 .elements("leaves", a.leaves, DType::f64, cpuopt::norm_leaves(a.x.n_elems()))
                 .status());
  constexpr detail::Op<SquareSumLeavesArgs> op = {"square_sum_leaves", &square_sum_leaves_host,
                                                  &cuda::square_sum_leaves};
  return detail::queue(backend, stream, op, a, {a.x}, {a.leaves});
}

}  // namespace strata::kernels
