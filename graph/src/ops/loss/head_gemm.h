#pragma once

#include "ops/op_defs.h"

// What the ops of a head and its losses share: x [T, K], weight [V, K] of one dtype, targets [T] i32.

namespace strata::detail {

inline bool is_head(op_rules::In in) {
  using namespace op_rules;
  return is_matrix(in[0]) && is_matrix(in[1]) && in[0]->dtype == in[1]->dtype &&
         in[0]->shape.dim(1) == in[1]->shape.dim(1) && has_type(in[2], {in[0]->shape.dim(0)}, DType::i32);
}
/// The logits cost this, and so does each of the two GEMMs of a backward.
inline double flops_head_gemm(op_rules::In in, op_rules::In, const Attrs&) {
  return 2.0 * static_cast<double>(in[0]->shape.n_elems()) * static_cast<double>(in[1]->shape.dim(0));
}

}  // namespace strata::detail
