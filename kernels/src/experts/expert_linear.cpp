#include <strata/kernels/experts/expert_linear.h>

#include <strata/dispatch/op.h>
#include <strata/dispatch/rows.h>

#include "experts/expert_panels.h"

namespace strata::kernels {
STRATA_OP(expert_linear_forward, ExpertLinearForwardArgs);
STRATA_OP(expert_linear_backward_input, ExpertLinearBackwardInputArgs);
STRATA_OP(expert_linear_backward_weight, ExpertLinearBackwardWeightArgs);
STRATA_OP(expert_linear_backward_bias, ExpertLinearBackwardBiasArgs);

namespace {

/// The leading extent of a tensor of a block of experts.
std::int64_t leading(const TensorView& view) noexcept { return view.shape.rank > 0 ? view.shape.dims[0] : 0; }

/// Requires offsets, and that the experts [first, first + of_block) are among those that they have.
void check_block(dispatch::Check& check, const char* name, const TensorView& offsets, std::int64_t first,
                 std::int64_t of_block) {
  const std::int64_t experts = offsets.n_elems() - 1;
  check.elements("offsets", offsets, DType::i32, offsets.n_elems())
      .require(experts >= 1, "offsets has ", experts + 1,
               " elements; it needs one more than there are experts, at least 2")
      .require(first >= 0 && first + of_block <= experts, name, " has the experts ", first, " to ",
               first + of_block, " of ", experts);
}

}  // namespace

std::size_t expert_linear_forward_workspace_bytes(const ExpertShape& shape) noexcept {
  return detail::tail_bytes(shape.k, shape.dtype);
}
std::size_t expert_linear_backward_input_workspace_bytes(const ExpertShape& shape) noexcept {
  return detail::tail_bytes(shape.n, shape.dtype);
}

Status expert_linear_forward_async(Backend& backend, Stream& stream, const ExpertLinearForwardArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.x), k = dispatch::row_length(a.x),
                     n = dispatch::row_length(a.y), experts = leading(a.w);
  dispatch::Check check("expert_linear_forward", "x", a.x);
  check.rows("x", a.x, rows, k).rows("y", a.y, rows, n).shape("w", a.w, a.x.dtype, {experts, n, k});
  if (dispatch::is_present(a.b)) check.shape("b", a.b, a.x.dtype, {experts, n});
  check_block(check, "w", a.offsets, a.first, experts);
  check.workspace(a.workspace, expert_linear_forward_workspace_bytes({rows, experts, n, k, a.x.dtype}));
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, expert_linear_forward_op, a, {a.x, a.w, a.b, a.offsets}, {a.y},
                           a.workspace);
}

Status expert_linear_backward_input_async(Backend& backend, Stream& stream,
                                          const ExpertLinearBackwardInputArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.dy), n = dispatch::row_length(a.dy),
                     k = dispatch::row_length(a.dx), experts = leading(a.w);
  dispatch::Check check("expert_linear_backward_input", "dy", a.dy);
  check.rows("dy", a.dy, rows, n).rows("dx", a.dx, rows, k).shape("w", a.w, a.dy.dtype, {experts, n, k});
  check_block(check, "w", a.offsets, a.first, experts);
  check.workspace(a.workspace,
                  expert_linear_backward_input_workspace_bytes({rows, experts, n, k, a.dy.dtype}));
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, expert_linear_backward_input_op, a, {a.dy, a.w, a.offsets},
                           {a.dx}, a.workspace);
}

Status expert_linear_backward_weight_async(Backend& backend, Stream& stream,
                                           const ExpertLinearBackwardWeightArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.dy), n = dispatch::row_length(a.dy),
                     k = dispatch::row_length(a.x), experts = leading(a.dw);
  dispatch::Check check("expert_linear_backward_weight", "dy", a.dy);
  check.rows("dy", a.dy, rows, n).rows("x", a.x, rows, k);
  check.gradient("dw", a.dw, {experts, n, k}, a.accumulate);
  check_block(check, "dw", a.offsets, a.first, experts);
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, expert_linear_backward_weight_op, a, {a.dy, a.x, a.offsets},
                           {a.dw});
}

Status expert_linear_backward_bias_async(Backend& backend, Stream& stream,
                                         const ExpertLinearBackwardBiasArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.dy), n = dispatch::row_length(a.dy),
                     experts = leading(a.db);
  dispatch::Check check("expert_linear_backward_bias", "dy", a.dy);
  check.rows("dy", a.dy, rows, n).gradient("db", a.db, {experts, n}, a.accumulate);
  check_block(check, "db", a.offsets, a.first, experts);
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, expert_linear_backward_bias_op, a, {a.dy, a.offsets}, {a.db});
}

}  // namespace strata::kernels
