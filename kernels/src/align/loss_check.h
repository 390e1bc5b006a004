#pragma once

#include <strata/dispatch/check.h>

namespace strata::kernels::detail {

/// Checks what all losses have in common.
template <class Args>
void check_loss(dispatch::Check& check, const Args& a, std::int64_t stats) {
  check.elements("divisor", a.divisor, DType::f32, 1)
      .elements("loss", a.loss, DType::f32, 1)
      .elements("stats", a.stats, DType::f32, stats);
}

}  // namespace strata::kernels::detail
