#include <strata/cpuopt/gradient.h>
#include <strata/cpuopt/norm.h>
#include <strata/ops/ranges.h>
#include <strata/state_kernels/gradient.h>

#include "work_items.h"

namespace strata::state_kernels {
namespace {

const std::byte* elements_from(const TensorView& view, std::int64_t i) {
  return view.data + static_cast<std::size_t>(i) * size_of(view.dtype);
}

}  // namespace

void accumulate_host(const AccumulateArgs& a, ThreadPool& pool) {
  ops::parallel_for_ranges(pool, a.acc.n_elems(), detail::kItemElems, [&](std::int64_t i, std::int64_t n) {
    cpuopt::accumulate({a.acc.as<float>() + i, static_cast<std::size_t>(n)}, a.g.dtype, elements_from(a.g, i),
                       a.first);
  });
}

void square_sum_partials_host(const SquareSumPartialsArgs& a, ThreadPool& pool) {
  ops::parallel_for_ranges(pool, a.x.n_elems(), detail::kItemElems, [&](std::int64_t i, std::int64_t n) {
    cpuopt::square_sum_partials(a.x.dtype, elements_from(a.x, i), n,
                                a.partials.as<double>() + i / cpuopt::kNormPartialElems);
  });
}

}  // namespace strata::state_kernels
