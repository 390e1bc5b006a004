#include <strata/cpuopt/gradient.h>
#include <strata/cpuopt/norm.h>
#include <strata/kernels/optimizer.h>

#include "op.h"

namespace strata::kernels {
namespace {

// A multiple of the elements of a norm partial and of a moment block, so that the split into work items does
// not change bits.
constexpr std::int64_t kBlockElems = 65536;
static_assert(kBlockElems % cpuopt::kNormPartialElems == 0 && kBlockElems % kMomentBlock == 0);

const std::byte* from(const TensorView& view, std::int64_t i) {
  return view.data + static_cast<std::size_t>(i) * size_of(view.dtype);
}

}  // namespace

void update_host(const UpdateArgs& a, ThreadPool& pool) {
  detail::parallel_for_ranges(pool, a.n, kBlockElems, [&](std::int64_t i, std::int64_t n) {
    cpuopt::update_block(a.step, a.block.at(i), n, a.noise);
  });
}

void lamb_partials_host(const LambPartialsArgs& a, ThreadPool& pool) {
  detail::parallel_for_ranges(pool, a.n, kBlockElems, [&](std::int64_t i, std::int64_t n) {
    const std::int64_t partial = i / cpuopt::kNormPartialElems;
    cpuopt::lamb_partials_block(a.step, a.block.at(i), n, a.master_partials + partial,
                                a.direction_partials + partial);
  });
}

void lamb_apply_host(const LambApplyArgs& a, ThreadPool& pool) {
  detail::parallel_for_ranges(pool, a.n, kBlockElems, [&](std::int64_t i, std::int64_t n) {
    cpuopt::lamb_apply_block(a.step, *a.trust, a.block.at(i), n);
  });
}

void accumulate_host(const AccumulateArgs& a, ThreadPool& pool) {
  detail::parallel_for_ranges(pool, a.acc.n_elems(), kBlockElems, [&](std::int64_t i, std::int64_t n) {
    cpuopt::accumulate({a.acc.as<float>() + i, static_cast<std::size_t>(n)}, a.g.dtype, from(a.g, i),
                       a.first);
  });
}

void square_sum_partials_host(const SquareSumPartialsArgs& a, ThreadPool& pool) {
  detail::parallel_for_ranges(pool, a.x.n_elems(), kBlockElems, [&](std::int64_t i, std::int64_t n) {
    cpuopt::square_sum_partials(a.x.dtype, from(a.x, i), n,
                                a.partials.as<double>() + i / cpuopt::kNormPartialElems);
  });
}

}  // namespace strata::kernels
