#include <strata/cpuopt/norm.h>
#include <strata/ops/ranges.h>
#include <strata/state_kernels/update.h>

#include "work_items.h"

namespace strata::state_kernels {

void update_host(const UpdateArgs& a, ThreadPool& pool) {
  ops::parallel_for_ranges(pool, a.n, detail::kItemElems, [&](std::int64_t i, std::int64_t n) {
    cpuopt::update_block(a.step, a.block.at(i), n, a.noise);
  });
}

void lamb_partials_host(const LambPartialsArgs& a, ThreadPool& pool) {
  ops::parallel_for_ranges(pool, a.n, detail::kItemElems, [&](std::int64_t i, std::int64_t n) {
    const std::int64_t partial = i / cpuopt::kNormPartialElems;
    cpuopt::lamb_partials_block(a.step, a.block.at(i), n, a.master_partials + partial,
                                a.direction_partials + partial);
  });
}

void lamb_apply_host(const LambApplyArgs& a, ThreadPool& pool) {
  ops::parallel_for_ranges(pool, a.n, detail::kItemElems, [&](std::int64_t i, std::int64_t n) {
    cpuopt::lamb_apply_block(a.step, *a.trust, a.block.at(i), n);
  });
}

}  // namespace strata::state_kernels
