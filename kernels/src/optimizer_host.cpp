#include <strata/cpuopt/gradient.h>
#include <strata/cpuopt/norm.h>
#include <strata/kernels/optimizer.h>

#include "op.h"

namespace strata::kernels {
namespace {

// A whole number of norm leaves and of blocks of moments, so that no cut changes a bit.
constexpr std::int64_t kBlockElems = 65536;
static_assert(kBlockElems % cpuopt::kNormLeafElems == 0 && kBlockElems % kMomentBlock == 0);

const std::byte* from(const TensorView& view, std::int64_t i) {
  return view.data + static_cast<std::size_t>(i) * size_of(view.dtype);
}

}  // namespace

void update_host(const UpdateArgs& a, ThreadPool& pool) {
  detail::for_runs(pool, a.n, kBlockElems, [&](std::int64_t i, std::int64_t n) {
    cpuopt::update_block(a.step, a.block.at(i), n, a.dither);
  });
}

void lamb_leaves_host(const LambLeavesArgs& a, ThreadPool& pool) {
  detail::for_runs(pool, a.n, kBlockElems, [&](std::int64_t i, std::int64_t n) {
    const std::int64_t leaf = i / cpuopt::kNormLeafElems;
    cpuopt::lamb_leaves_block(a.step, a.block.at(i), n, a.master_leaves + leaf, a.direction_leaves + leaf);
  });
}

void lamb_apply_host(const LambApplyArgs& a, ThreadPool& pool) {
  detail::for_runs(pool, a.n, kBlockElems, [&](std::int64_t i, std::int64_t n) {
    cpuopt::lamb_apply_block(a.step, *a.trust, a.block.at(i), n);
  });
}

void accumulate_host(const AccumulateArgs& a, ThreadPool& pool) {
  detail::for_runs(pool, a.acc.n_elems(), kBlockElems, [&](std::int64_t i, std::int64_t n) {
    cpuopt::accumulate({a.acc.as<float>() + i, static_cast<std::size_t>(n)}, a.g.dtype, from(a.g, i),
                       a.first);
  });
}

void square_sum_leaves_host(const SquareSumLeavesArgs& a, ThreadPool& pool) {
  detail::for_runs(pool, a.x.n_elems(), kBlockElems, [&](std::int64_t i, std::int64_t n) {
    cpuopt::square_sum_leaves(a.x.dtype, from(a.x, i), n, a.leaves.as<double>() + i / cpuopt::kNormLeafElems);
  });
}

}  // namespace strata::kernels
