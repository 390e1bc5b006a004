#pragma once

#include <utility>

#include <strata/kernels/linear_cross_entropy.h>

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

/// GEMMs have workspaces on a GPU, where blocks of logits have more rows.
inline kernels::HeadBlocks head_blocks(const Attrs& attrs) {
  return attrs.has_gemm_workspace() ? kernels::HeadBlocks::device : kernels::HeadBlocks::host;
}
/// The outputs `made`, then the memory of a block of logits, and the GEMMs' workspace if they have one.
inline std::vector<OutputSpec> with_head_workspaces(std::vector<OutputSpec> made, op_rules::In in,
                                                    const Attrs& attrs) {
  const std::int64_t rows = in[0]->shape.dim(0), vocab = in[1]->shape.dim(0), k = in[1]->shape.dim(1);
  made.push_back(op_rules::workspace(
      kernels::linear_cross_entropy_workspace_bytes(rows, vocab, in[0]->dtype, head_blocks(attrs))));
  return op_rules::with_gemm_workspace(std::move(made), *attrs.gemm(),
                                       kernels::linear_cross_entropy_gemm_workspace_bytes(rows, vocab, k));
}

/// What a head moves: a GEMM reads the weight and writes each block of logits, and the loss reads it. The
/// gradients of one or several blocks then read the weight for dx, and add to its gradient in f32, which the
/// first ones only write.
inline BlockedWork blocks_of_head(op_rules::In in, const Attrs& attrs, double logit_bytes,
                                  bool has_input_gradient, bool has_weight_gradient) {
  const std::int64_t rows = in[0]->shape.dim(0), vocab = in[1]->shape.dim(0);
  BlockedWork work{.rows = kernels::head_block_rows(rows, vocab, head_blocks(attrs))};
  const std::int64_t together = kernels::head_gradient_rows(rows, vocab, in[0]->dtype, head_blocks(attrs));
  const auto passes = [rows](std::int64_t of_rows) -> double {
    const std::int64_t n = (rows + of_rows - 1) / std::max<std::int64_t>(of_rows, 1);
    return static_cast<double>(n);
  };
  const double weight_passes = passes(work.rows) + (has_input_gradient ? passes(together) : 0.0);
  const double gradient_passes = has_weight_gradient ? 2 * passes(together) - 1 : 0.0;
  work.gemm_bytes =
      static_cast<double>(in[1]->shape.n_elems()) *
      (weight_passes * static_cast<double>(size_of(in[1]->dtype)) + gradient_passes * sizeof(float));
  work.row_bytes = static_cast<double>(rows * vocab) * logit_bytes;
  return work;
}
/// The work of a forward pass, where logits in f32 are written and read once.
inline BlockedWork blocks_of_forward(op_rules::In in, const Attrs& attrs) {
  return blocks_of_head(in, attrs, 8, false, false);
}
/// The work of a backward pass whose attributes have no_dx and no_dw. The logits' gradient is written in the
/// dtype of x and read by both GEMMs.
template <class A>
BlockedWork blocks_of_backward(op_rules::In in, const Attrs& attrs) {
  const A& a = attrs.as<A>();
  const double gradient = static_cast<double>(size_of(in[0]->dtype)) * (3.0 - a.no_dx - a.no_dw);
  return blocks_of_head(in, attrs, 8 + gradient, !a.no_dx, !a.no_dw);
}

}  // namespace strata::detail
