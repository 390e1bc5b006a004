#include <strata/kernels/mixers/divided_columns.h>

#include <strata/runtime/str.h>

#include "ops/op_defs.h"

// divide_columns: (x [T, all]) -> first [T, of_first], second [T, of_second]
// unite_columns: (first, second) -> x

namespace strata {
namespace {

using namespace detail::op_rules;

bool is_divided(const kernels::DividedColumns& c) {
  return c.groups >= 1 && c.first >= 0 && c.second >= 1 && c.tail >= 0 && c.of_first() >= 1;
}
std::string rule_of(const char* operands, const kernels::DividedColumns& c) {
  return str(operands, " of ", c.groups, " groups of ", c.first, " and ", c.second, " columns and ", c.tail,
             " more");
}

Specs infer_divide_columns(In in, const Attrs& attrs) {
  const auto& c = attrs.as<DividedColumnsAttrs>().columns;
  if (!is_matrix(in[0]) || !is_divided(c) || in[0]->shape.dim(1) != c.all())
    return mismatch(rule_of("x [T, all]", c), in);
  const std::int64_t rows = in[0]->shape.dim(0);
  return std::vector<OutputSpec>{{"first", {rows, c.of_first()}, in[0]->dtype},
                                 {"second", {rows, c.of_second()}, in[0]->dtype}};
}
void vjp_divide_columns(VjpContext& c) {
  c.emit(Op::unite_columns, {c.grad_output(0), c.grad_output(1)}, {0}, c.attrs());
}
Status launch_divide_columns(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::divide_columns_async(
      backend, stream, {c.in[0], c.out[0], c.out[1], c.attrs.as<DividedColumnsAttrs>().columns});
}

Specs infer_unite_columns(In in, const Attrs& attrs) {
  const auto& c = attrs.as<DividedColumnsAttrs>().columns;
  const bool fit = is_matrix(in[0]) && is_divided(c) && in[0]->shape.dim(1) == c.of_first() &&
                   has_type(in[1], {in[0]->shape.dim(0), c.of_second()}, in[0]->dtype);
  if (!fit) return mismatch(rule_of("the parts [T, of_first] and [T, of_second]", c), in);
  return std::vector<OutputSpec>{{"x", {in[0]->shape.dim(0), c.all()}, in[0]->dtype}};
}
void vjp_unite_columns(VjpContext& c) { c.emit(Op::divide_columns, {c.grad_output(0)}, {0, 1}, c.attrs()); }
Status launch_unite_columns(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::unite_columns_async(
      backend, stream, {c.in[0], c.in[1], c.out[0], c.attrs.as<DividedColumnsAttrs>().columns});
}

}  // namespace

ColumnParts Builder::divide_columns(Value x, const kernels::DividedColumns& columns) {
  const Value first = op(Op::divide_columns, {x}, DividedColumnsAttrs{.columns = columns});
  return {first, output(first, 1)};
}
Value Builder::unite_columns(const ColumnParts& parts, const kernels::DividedColumns& columns) {
  return op(Op::unite_columns, {parts.first, parts.second}, DividedColumnsAttrs{.columns = columns});
}

constinit const OpDef detail::op_defs::divide_columns = {
    .n_in = 1,
    .infer_outputs = infer_divide_columns,
    .vjp = vjp_divide_columns,
    .flops = no_flops,
    .launch = launch_divide_columns,
    .adds_to_gradients = false,
};
constinit const OpDef detail::op_defs::unite_columns = {
    .n_in = 2,
    .infer_outputs = infer_unite_columns,
    .vjp = vjp_unite_columns,
    .flops = no_flops,
    .launch = launch_unite_columns,
    .adds_to_gradients = false,
};

}  // namespace strata
