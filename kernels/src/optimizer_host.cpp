#include <span>

#include <strata/cpuopt/norm.h>
#include <strata/cpuopt/update.h>
#include <strata/kernels/optimizer.h>
#include <strata/runtime/assert.h>

#include "op.h"
#include "row_table.h"

namespace strata::kernels {
namespace {

constexpr std::int64_t kBlockElems = 65536;
static_assert(kBlockElems % cpuopt::kNormLeafElems == 0);

}  // namespace

void adamw_host(const AdamWArgs& a, ThreadPool& pool) {
  cpuopt::UpdateStep step = cpuopt::update_step(a.params);
  if (detail::is_given(a.grad_factor)) step.scalars.grad_factor = *a.grad_factor.as<float>();
  detail::for_runs(pool, a.p.n_elems(), kBlockElems, [&](std::int64_t i, std::int64_t n) {
    cpuopt::update_block(step,
                         {.param = a.p.as<float>() + i,
                          .m = {a.m.as<float>() + i, nullptr},
                          .v = {a.v.as<float>() + i, nullptr},
                          .g = a.g.as<float>() + i},
                         n, {});
  });
}

void accumulate_host(const AccumulateArgs& a, ThreadPool& pool) {
  detail::for_runs(pool, a.acc.n_elems(), kBlockElems, [&](std::int64_t i, std::int64_t n) {
    detail::row_table().add_to(a.acc.as<float>() + i, a.g.as<float>() + i, n);
  });
}

void square_sum_leaves_host(const SquareSumLeavesArgs& a, ThreadPool& pool) {
  detail::for_runs(pool, a.x.n_elems(), kBlockElems, [&](std::int64_t i, std::int64_t n) {
    const std::span<const float> x(a.x.as<float>() + i, static_cast<std::size_t>(n));
    const std::span<double> leaves(a.leaves.as<double>() + i / cpuopt::kNormLeafElems,
                                   static_cast<std::size_t>(cpuopt::norm_leaves(n)));
    const Status status = cpuopt::square_sum_leaves(x, leaves);
    STRATA_ASSERT(status.is_ok(), status.message());
  });
}

}  // namespace strata::kernels
