#pragma once

#include <cstdint>

#include <strata/runtime/tensor_view.h>

namespace strata::kernels::detail {

/// Heads of n elements in all rows. Head i has the elements from i % of_weight * n on of the weight.
struct GatedNormShape {
  std::int64_t heads, n, of_weight;
};
inline GatedNormShape gated_norm_shape(const TensorView& x, const TensorView& weight,
                                       std::int64_t head_dim) noexcept {
  const std::int64_t n = head_dim > 0 ? head_dim : weight.n_elems();
  return {x.n_elems() / n, n, weight.n_elems() / n};
}

}  // namespace strata::kernels::detail
