#include <strata/kernels/experts/rows.h>

#include <strata/runtime/str.h>

#include "ops/op_defs.h"

// route_rows: (experts [T, k] i32) -> offsets [E + 1], source [R], position [R], all i32; R = T k
// gather_rows: (x [T, H], source [R], position [R]) -> rows [R, H]; position is read by the derivative alone
// sum_rows: (rows [R, H], source [R], position [R], base [T, H] or none) -> y [T, H]; source is read by the
//   derivative alone
// Gathering and summing are each other's derivatives.

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

bool has_rows(const ValueInfo* rows, const ValueInfo* source, const ValueInfo* position) {
  const Shape r = {rows->shape.dim(0)};
  return has_type(source, r, DType::i32) && has_type(position, r, DType::i32);
}

Specs infer_route_rows(In in, const Attrs& attrs) {
  if (in[0] == nullptr || in[0]->dtype != DType::i32 || in[0]->shape.rank != 2)
    return mismatch("experts [T, k] i32", in);
  const Shape rows = {in[0]->shape.n_elems()};
  return std::vector<OutputSpec>{{"offsets", {attrs.as<RouteRowsAttrs>().experts + 1}, DType::i32},
                                 {"source", rows, DType::i32},
                                 {"position", rows, DType::i32}};
}
Status launch_route_rows(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::route_rows_async(backend, stream, {c.in[0], c.out[0], c.out[1], c.out[2]});
}

Specs infer_gather_rows(In in, const Attrs& attrs) {
  const std::int64_t k = attrs.as<ChoiceAttrs>().k;
  if (!is_matrix(in[0]) || k < 1 || !has_type(in[1], {in[0]->shape.dim(0) * k}, DType::i32) ||
      !has_type(in[2], in[1]->shape, DType::i32))
    return mismatch(str("x [T, H], source [", k, " T] i32, position [", k, " T] i32"), in);
  return std::vector<OutputSpec>{{"rows", {in[1]->shape.dim(0), in[0]->shape.dim(1)}, in[0]->dtype}};
}
void vjp_gather_rows(VjpContext& c) {
  c.emit(Op::sum_rows, {c.grad_output(0), c.in(1), c.in(2), c.consume_input_grad(0)}, {0}, c.attrs());
}
Status launch_gather_rows(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::gather_rows_async(backend, stream, {c.in[0], c.in[1], c.out[0]});
}

Specs infer_sum_rows(In in, const Attrs& attrs) {
  const std::int64_t k = attrs.as<ChoiceAttrs>().k;
  if (!is_matrix(in[0]) || k < 1 || in[0]->shape.dim(0) % k != 0 || !has_rows(in[0], in[1], in[2]) ||
      (in[3] != nullptr && !has_type(in[3], {in[0]->shape.dim(0) / k, in[0]->shape.dim(1)}, in[0]->dtype)))
    return mismatch(str("rows [", k, " T, H], source [", k, " T] i32, position [", k,
                        " T] i32, base [T, H] of the ", "dtype of rows, or none"),
                    in);
  return std::vector<OutputSpec>{{"y", {in[0]->shape.dim(0) / k, in[0]->shape.dim(1)}, in[0]->dtype}};
}
void vjp_sum_rows(VjpContext& c) {
  if (c.needs_input_grad(0)) c.emit(Op::gather_rows, {c.grad_output(0), c.in(1), c.in(2)}, {0}, c.attrs());
  c.propagate_grad(3, c.grad_output(0));
}
Status launch_sum_rows(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::sum_rows_async(backend, stream, {c.in[0], c.in[2], or_none(c.in[3]), c.out[0]});
}
double flops_sum_rows(In in, In, const Attrs&) { return static_cast<double>(in[0]->shape.n_elems()); }

}  // namespace

RoutedRows Builder::route_rows(const Routed& routed, std::int32_t experts) {
  const Value offsets = op(Op::route_rows, {routed.experts}, RouteRowsAttrs{.experts = experts});
  return {offsets, output(offsets, 1), output(offsets, 2)};
}
Value Builder::gather_rows(Value x, const RoutedRows& rows, std::int32_t k) {
  return op(Op::gather_rows, {x, rows.source, rows.position}, ChoiceAttrs{.k = k});
}
Value Builder::sum_rows(Value ys, const RoutedRows& rows, std::int32_t k, Value base) {
  return op(Op::sum_rows, {ys, rows.source, rows.position, base}, ChoiceAttrs{.k = k});
}

constinit const OpDef detail::op_defs::route_rows = {
    .n_in = 1,
    .infer_outputs = infer_route_rows,
    .flops = no_flops,
    .launch = launch_route_rows,
};
constinit const OpDef detail::op_defs::gather_rows = {
    .n_in = 3,
    .infer_outputs = infer_gather_rows,
    .vjp = vjp_gather_rows,
    .flops = no_flops,
    .launch = launch_gather_rows,
};
constinit const OpDef detail::op_defs::sum_rows = {
    .n_in = 4,
    .optional_in = 3,
    .infer_outputs = infer_sum_rows,
    .vjp = vjp_sum_rows,
    .in_place = {.out = 0, .in = 3},
    .flops = flops_sum_rows,
    .launch = launch_sum_rows,
};

}  // namespace strata
