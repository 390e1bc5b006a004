#include <strata/kernels/virtual_rows.h>

#include <strata/runtime/str.h>

#include "ops/op_defs.h"

// splice_rows: (x [B seq, h], added [n, <= h] or none: zeros) -> y [B (n + seq), h]
// splice_rows_backward: (dy [B (n + seq), h], added for its shape) -> dadded
// drop_rows: (x [B (n + seq), h]) -> y [B seq, h]
// replace_rows: (x [R, h], positions [R] i32, added [n, <= h]) -> y [R, h]; for programs with a KV cache

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

bool can_be_added(const ValueInfo* added, const ValueInfo* x) {
  return is_matrix(added) && added->dtype == x->dtype && added->shape.dim(1) > 0 &&
         added->shape.dim(1) <= x->shape.dim(1);
}
bool has_sequences(const ValueInfo* x, std::int64_t rows) {
  return is_matrix(x) && rows > 0 && x->shape.dim(0) % rows == 0;
}

Specs infer_splice_rows(In in, const Attrs& attrs) {
  const auto& a = attrs.as<VirtualRowsAttrs>();
  if (a.n < 0 || a.seq <= 0 || !has_sequences(in[0], a.seq) ||
      (in[1] != nullptr && (!can_be_added(in[1], in[0]) || in[1]->shape.dim(0) != a.n)))
    return mismatch(
        str("x [batch * ", a.seq, ", h] and virtual rows [", a.n, ", at most h] of one dtype, or none"), in);
  const std::int64_t rows = in[0]->shape.dim(0) / a.seq * (a.n + a.seq);
  return std::vector<OutputSpec>{{"y", {rows, in[0]->shape.dim(1)}, in[0]->dtype}};
}
void vjp_splice_rows(VjpContext& c) {
  const ValueId dy = c.grad_output(0);
  if (c.needs_input_grad(1)) c.emit(Op::splice_rows_backward, {dy, c.in(1)}, {1}, c.attrs());
  if (c.needs_input_grad(0)) c.emit(Op::drop_rows, {dy}, {0}, c.attrs());
}
Status launch_splice_rows(const OpCall& c, Backend& backend, Stream& stream) {
  const auto& a = c.attrs.as<VirtualRowsAttrs>();
  return kernels::splice_rows_async(backend, stream, {c.in[0], or_none(c.in[1]), c.out[0], a.n, a.seq});
}

Specs infer_splice_rows_backward(In in, const Attrs&) {
  return std::vector<OutputSpec>{{"dadded", in[1]->shape, in[1]->dtype}};
}
Status launch_splice_rows_backward(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::splice_rows_backward_async(
      backend, stream, {c.in[0], c.out[0], c.attrs.as<VirtualRowsAttrs>().seq, accumulates(c, 0)});
}

Specs infer_drop_rows(In in, const Attrs& attrs) {
  const auto& a = attrs.as<VirtualRowsAttrs>();
  if (a.n < 0 || a.seq <= 0 || !has_sequences(in[0], a.n + a.seq))
    return mismatch(str("x [batch * (", a.n, " + ", a.seq, "), h]"), in);
  const std::int64_t rows = in[0]->shape.dim(0) / (a.n + a.seq) * a.seq;
  return std::vector<OutputSpec>{{"y", {rows, in[0]->shape.dim(1)}, in[0]->dtype}};
}
void vjp_drop_rows(VjpContext& c) { c.emit(Op::splice_rows, {c.grad_output(0), kNoValue}, {0}, c.attrs()); }
Status launch_drop_rows(const OpCall& c, Backend& backend, Stream& stream) {
  const auto& a = c.attrs.as<VirtualRowsAttrs>();
  return kernels::drop_rows_async(backend, stream, {c.in[0], c.out[0], a.n, a.seq});
}

Specs infer_replace_rows(In in, const Attrs&) {
  if (!is_matrix(in[0]) || !has_type(in[1], {in[0]->shape.dim(0)}, DType::i32) || !can_be_added(in[2], in[0]))
    return mismatch("x [R, h], positions [R] i32 and virtual rows [n, at most h] of the dtype of x", in);
  return std::vector<OutputSpec>{{"y", in[0]->shape, in[0]->dtype}};
}
Status launch_replace_rows(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::replace_rows_async(backend, stream, {c.in[0], c.in[1], c.in[2], c.out[0]});
}

}  // namespace

constinit const OpDef detail::op_defs::splice_rows = {
    .n_in = 2,
    .optional_in = 1,
    .infer_outputs = infer_splice_rows,
    .vjp = vjp_splice_rows,
    .flops = no_flops,
    .launch = launch_splice_rows,
};
constinit const OpDef detail::op_defs::splice_rows_backward = {
    .n_in = 2,
    .shape_only_in = 1,
    .infer_outputs = infer_splice_rows_backward,
    .flops = no_flops,
    .launch = launch_splice_rows_backward,
};
constinit const OpDef detail::op_defs::drop_rows = {
    .n_in = 1,
    .infer_outputs = infer_drop_rows,
    .vjp = vjp_drop_rows,
    .flops = no_flops,
    .launch = launch_drop_rows,
};
constinit const OpDef detail::op_defs::replace_rows = {
    .n_in = 3,
    .infer_outputs = infer_replace_rows,
    .in_place = {.out = 0, .in = 0},
    .flops = no_flops,
    .launch = launch_replace_rows,
};

}  // namespace strata
