#include "update_in_f32.h"

#include <cstddef>

#include "update_table.h"

namespace strata::cpuopt {

void detail::update_in_f32(const UpdateStep& step, const UpdateBlock& b, std::int64_t n,
                           Prefetch prefetch) noexcept {
  STRATA_ACTIVE_TABLE(update_table)
      .in_f32[step.rule][static_cast<std::size_t>(prefetch)](
          step.scalars,
          {b.param, b.master, static_cast<float*>(b.m.values), static_cast<float*>(b.v.values), b.g}, n);
}

}  // namespace strata::cpuopt
