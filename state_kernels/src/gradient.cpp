#include <strata/state_kernels/gradient.h>

#include <strata/cpuopt/norm.h>
#include <strata/ops/op.h>

#include "cuda/launches.h"

namespace strata::state_kernels {

Status accumulate_async(Backend& backend, Stream& stream, const AccumulateArgs& a) {
  const std::int64_t n = a.acc.n_elems();
  STRATA_TRY(ops::Check("accumulate", "g", a.g)
                 .elements("acc", a.acc, DType::f32, n)
                 .elements("g", a.g, a.g.dtype, n)
                 .status());
  constexpr ops::OpImpl<AccumulateArgs> op = {"accumulate", &accumulate_host, &cuda::accumulate};
  return ops::enqueue(backend, stream, op, a, {a.g}, {a.acc});
}

Status square_sum_partials_async(Backend& backend, Stream& stream, const SquareSumPartialsArgs& a) {
  STRATA_TRY(ops::Check("square_sum_partials", "x", a.x)
                 .elements("partials", a.partials, DType::f64, cpuopt::norm_partial_count(a.x.n_elems()))
                 .status());
  constexpr ops::OpImpl<SquareSumPartialsArgs> op = {"square_sum_partials", &square_sum_partials_host,
                                                     &cuda::square_sum_partials};
  return ops::enqueue(backend, stream, op, a, {a.x}, {a.partials});
}

}  // namespace strata::state_kernels
