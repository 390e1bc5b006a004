#pragma once

#include <algorithm>
#include <initializer_list>

#include "ops/op_defs.h"

namespace strata::detail::op_rules {

/// Whether these operands are f32 vectors of one length.
inline bool are_vectors(In in, std::initializer_list<std::size_t> which) {
  const ValueInfo* const first = in[*which.begin()];
  return first != nullptr && first->shape.rank == 1 &&
         std::all_of(which.begin(), which.end(),
                     [&](std::size_t i) { return has_type(in[i], first->shape); });
}

}  // namespace strata::detail::op_rules
