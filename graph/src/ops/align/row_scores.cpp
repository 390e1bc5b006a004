#include <strata/kernels/align/row_scores.h>

#include "ops/op_defs.h"

// row_scores: (x [T, K], weight [1, K], bias [1] or none) -> scores [T]
// row_scores_backward: (x, weight, bias for its shape or none, dscores [T]) -> dx, dweight, workspace, and
//   dbias if there is a bias

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

Specs infer_row_scores(In in, const Attrs&) {
  if (!is_matrix(in[0]) || !has_type(in[1], {1, in[0]->shape.dim(1)}, in[0]->dtype) ||
      (in[2] != nullptr && !has_type(in[2], {1}, in[0]->dtype)))
    return mismatch("x [T, K], weight [1, K], bias [1] or none, of one dtype", in);
  return std::vector<OutputSpec>{{"scores", {in[0]->shape.dim(0)}}};
}
void vjp_row_scores(VjpContext& c) {
  std::vector<int> grads = {0, 1, -1};
  if (c.in(2) != kNoValue) grads.push_back(2);
  c.emit(Op::row_scores_backward, {c.in(0), c.in(1), c.in(2), c.grad_output(0)}, grads);
}
Status launch_row_scores(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::row_scores_async(backend, stream, {c.in[0], c.in[1], or_none(c.in[2]), c.out[0]});
}

Specs infer_row_scores_backward(In in, const Attrs& attrs) {
  STRATA_TRY(infer_row_scores(in.first(3), attrs).status());
  const std::int64_t rows = in[0]->shape.dim(0), k = in[0]->shape.dim(1);
  if (!has_type(in[3], {rows})) return mismatch("dscores [T]", in);
  std::vector<OutputSpec> out = {{"dx", in[0]->shape, in[0]->dtype},
                                 {"dweight", in[1]->shape, in[1]->dtype},
                                 workspace(kernels::row_scores_backward_workspace_bytes(rows, k))};
  if (in[2] != nullptr) out.push_back({"dbias", in[2]->shape, in[2]->dtype});
  return out;
}
Status launch_row_scores_backward(const OpCall& c, Backend& backend, Stream& stream) {
  const bool has_bias = c.out.size() > 3;
  return kernels::row_scores_backward_async(backend, stream,
                                            {.x = c.in[0],
                                             .weight = c.in[1],
                                             .dscores = c.in[3],
                                             .dx = c.out[0],
                                             .dweight = c.out[1],
                                             .dbias = has_bias ? c.out[3] : TensorView{},
                                             .accumulate_dweight = accumulates(c, 1),
                                             .accumulate_dbias = has_bias && accumulates(c, 3),
                                             .workspace = as_workspace(c.out[2])});
}

}  // namespace

Value Builder::row_scores(Value x, Value weight, Value bias) { return op(Op::row_scores, {x, weight, bias}); }

constinit const OpDef detail::op_defs::row_scores = {
    .n_in = 3,
    .optional_in = 2,
    .infer_outputs = infer_row_scores,
    .vjp = vjp_row_scores,
    .flops = per_element,
    .launch = launch_row_scores,
    .shard = shard_rows,
};
constinit const OpDef detail::op_defs::row_scores_backward = {
    .n_in = 4,
    .optional_in = 2,
    .shape_only_in = 2,
    .infer_outputs = infer_row_scores_backward,
    .flops = per_element,
    .launch = launch_row_scores_backward,
};

}  // namespace strata
