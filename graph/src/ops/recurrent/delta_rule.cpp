#include <strata/kernels/recurrent/delta_rule.h>

#include <strata/runtime/str.h>

#include "ops/op_defs.h"

// delta_rule: (qkv [T, 2 key_heads key_dim + value_heads value_dim], g and beta [T, value_heads] f32,
//   doc_start [T] i32 or none) -> out [T, value_heads value_dim], workspace
// delta_rule_backward: (qkv, g, beta, dout, doc_start or none) -> dqkv, dg, dbeta, workspace
// cached_delta_rule: (qkv [R, ...], g, beta, positions [R], slots [R] i32, state [sequences, key_heads,
//   delta_state_elems] f32, written in place) -> out, workspace

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

const kernels::DeltaHeads& delta_heads(const Attrs& attrs) { return attrs.as<DeltaRuleAttrs>().heads; }
bool delta_rows_fit(In in, const kernels::DeltaHeads& h) {
  if (!is_matrix(in[0]) || h.key_heads < 1 || h.value_heads < 1 || h.value_heads % h.key_heads != 0 ||
      h.key_dim < 1 || h.value_dim < 1)
    return false;
  const Shape gates = {in[0]->shape.dim(0), h.value_heads};
  return in[0]->shape.dim(1) == h.qkv_width() && has_type(in[1], gates) && has_type(in[2], gates);
}
std::string rows_rule(const kernels::DeltaHeads& h, const std::string& rows) {
  return str("qkv [", rows, ", 2 * ", h.key_heads, " * ", h.key_dim, " + ", h.value_heads, " * ", h.value_dim,
             "] with value heads a multiple of key heads, g and beta [T, ", h.value_heads, "] f32");
}

Specs infer_delta_rule(In in, const Attrs& attrs) {
  const kernels::DeltaHeads& h = delta_heads(attrs);
  if (!delta_rows_fit(in, h) || h.seq < 1 || in[0]->shape.dim(0) % h.seq != 0 ||
      (in[3] != nullptr && !has_type(in[3], {in[0]->shape.dim(0)}, DType::i32)))
    return mismatch(rows_rule(h, str("batch * ", h.seq)) + ", doc_start [T] i32 or none", in);
  const std::int64_t rows = in[0]->shape.dim(0);
  return std::vector<OutputSpec>{{"out", {rows, h.out_width()}, in[0]->dtype},
                                 workspace(kernels::delta_rule_forward_workspace_bytes(rows, h))};
}
void vjp_delta_rule(VjpContext& c) {
  c.emit(Op::delta_rule_backward, {c.in(0), c.in(1), c.in(2), c.grad_output(0), c.in(3)}, {0, 1, 2, -1},
         c.attrs());
}
// The products of a chunk: three with the state, and those within its 64 rows of which half are 0.
double flops_delta_rule(In in, In, const Attrs& attrs) {
  const kernels::DeltaHeads& h = delta_heads(attrs);
  const double rows = static_cast<double>(in[0]->shape.dim(0)), dk = h.key_dim, dv = h.value_dim;
  return 2.0 * rows * (h.value_heads * (3 * dk * dv + 64 * dv) + h.key_heads * 64 * dk);
}
Status launch_delta_rule(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::delta_rule_forward_async(backend, stream,
                                           {.qkv = c.in[0],
                                            .g = c.in[1],
                                            .beta = c.in[2],
                                            .doc_start = or_none(c.in[3]),
                                            .out = c.out[0],
                                            .heads = delta_heads(c.attrs),
                                            .workspace = as_workspace(c.out[1])});
}

Specs infer_delta_rule_backward(In in, const Attrs& attrs) {
  return std::vector<OutputSpec>{
      {"dqkv", in[0]->shape, in[0]->dtype},
      {"dg", in[1]->shape},
      {"dbeta", in[2]->shape},
      workspace(kernels::delta_rule_backward_workspace_bytes(in[0]->shape.dim(0), delta_heads(attrs)))};
}
// The states and values again, and two products for each of the forward's.
double flops_delta_rule_backward(In in, In out, const Attrs& attrs) {
  return 3.0 * flops_delta_rule(in, out, attrs);
}
Status launch_delta_rule_backward(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::delta_rule_backward_async(
      backend, stream,
      {c.in[0], c.in[1], c.in[2], or_none(c.in[4]), c.in[3], c.out[0], c.out[1], c.out[2],
       delta_heads(c.attrs), as_workspace(c.out[3])});
}

Specs infer_cached_delta_rule(In in, const Attrs& attrs) {
  const kernels::DeltaHeads& h = delta_heads(attrs);
  const bool fits = delta_rows_fit(in, h) && has_type(in[3], {in[0]->shape.dim(0)}, DType::i32) &&
                    has_type(in[4], {in[0]->shape.dim(0)}, DType::i32) && in[5] != nullptr &&
                    in[5]->kind == ValueKind::state && in[5]->shape.rank == 3 &&
                    has_type(in[5], {in[5]->shape.dim(0), h.key_heads, kernels::delta_state_elems(h)});
  if (!fits)
    return mismatch(rows_rule(h, "R") + str(", positions and slots [R] i32, and the state [sequences, ",
                                            h.key_heads, ", ", kernels::delta_state_elems(h), "] f32"),
                    in);
  return std::vector<OutputSpec>{{"out", {in[0]->shape.dim(0), h.out_width()}, in[0]->dtype},
                                 workspace(kernels::cached_delta_rule_workspace_bytes(h))};
}
Status launch_cached_delta_rule(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::cached_delta_rule_async(backend, stream,
                                          {c.in[0], c.in[1], c.in[2], c.in[3], c.in[4], c.in[5], c.out[0],
                                           delta_heads(c.attrs), as_workspace(c.out[1])});
}

}  // namespace

Value Builder::delta_rule(Value qkv, const DeltaGates& gates, const kernels::DeltaHeads& heads,
                          Value doc_start) {
  return op(Op::delta_rule, {qkv, gates.g, gates.beta, doc_start}, DeltaRuleAttrs{.heads = heads});
}
Value Builder::cached_delta_rule(Value qkv, const DeltaGates& gates, Value positions, Value slots, Value kept,
                                 const kernels::DeltaHeads& heads) {
  return op(Op::cached_delta_rule, {qkv, gates.g, gates.beta, positions, slots, kept},
            DeltaRuleAttrs{.heads = heads});
}

constinit const OpDef detail::op_defs::delta_rule = {
    .kind = OpKind::recurrent,
    .n_in = 4,
    .optional_in = 3,
    .infer_outputs = infer_delta_rule,
    .vjp = vjp_delta_rule,
    .flops = flops_delta_rule,
    .launch = launch_delta_rule,
};
constinit const OpDef detail::op_defs::delta_rule_backward = {
    .kind = OpKind::recurrent,
    .n_in = 5,
    .optional_in = 4,
    .infer_outputs = infer_delta_rule_backward,
    .flops = flops_delta_rule_backward,
    .launch = launch_delta_rule_backward,
};
constinit const OpDef detail::op_defs::cached_delta_rule = {
    .kind = OpKind::recurrent,
    .n_in = 6,
    .infer_outputs = infer_cached_delta_rule,
    .flops = flops_delta_rule,
    .launch = launch_cached_delta_rule,
};

}  // namespace strata
