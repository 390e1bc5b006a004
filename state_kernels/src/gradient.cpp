#include <strata/state_kernels/gradient.h>

#include <strata/simd/gradient.h>
#include <strata/simd/norm.h>
#include <strata/dispatch/op.h>
#include <strata/dispatch/ranges.h>

#include "work_items.h"

namespace strata::state_kernels {
namespace {

const std::byte* elements_from(const TensorView& view, std::int64_t i) {
  return view.data + static_cast<std::size_t>(i) * size_of(view.dtype);
}

}  // namespace

STRATA_OP(accumulate, AccumulateArgs);
STRATA_OP(square_sum_partials, SquareSumPartialsArgs);

void accumulate_host(const AccumulateArgs& a, ThreadPool& pool) {
  dispatch::parallel_for_ranges(pool, a.acc.n_elems(), detail::kItemElems,
                                [&](std::int64_t i, std::int64_t n) {
                                  simd::accumulate({a.acc.as<float>() + i, static_cast<std::size_t>(n)},
                                                   a.g.dtype, elements_from(a.g, i), a.first);
                                });
}

void square_sum_partials_host(const SquareSumPartialsArgs& a, ThreadPool& pool) {
  dispatch::parallel_for_ranges(pool, a.x.n_elems(), detail::kItemElems, [&](std::int64_t i, std::int64_t n) {
    simd::square_sum_partials(a.x.dtype, elements_from(a.x, i), n,
                              a.partials.as<double>() + i / simd::kNormPartialElems);
  });
}

Status accumulate_async(Backend& backend, Stream& stream, const AccumulateArgs& a) {
  const std::int64_t n = a.acc.n_elems();
  STRATA_TRY(dispatch::Check("accumulate", "g", a.g)
                 .elements("acc", a.acc, DType::f32, n)
                 .elements("g", a.g, a.g.dtype, n)
                 .status());
  return dispatch::enqueue(backend, stream, accumulate_op, a, {a.g}, {a.acc});
}

Status square_sum_partials_async(Backend& backend, Stream& stream, const SquareSumPartialsArgs& a) {
  STRATA_TRY(dispatch::Check("square_sum_partials", "x", a.x)
                 .elements("partials", a.partials, DType::f64, simd::norm_partial_count(a.x.n_elems()))
                 .status());
  return dispatch::enqueue(backend, stream, square_sum_partials_op, a, {a.x}, {a.partials});
}

}  // namespace strata::state_kernels
