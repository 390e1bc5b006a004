#include <strata/kernels/elementwise.h>
#include <strata/kernels/mixers/scale_parts.h>

#include <strata/runtime/str.h>

#include "ops/op_defs.h"

// scale: (x) -> y = factor x
// scale_by: (x [T, h], s [1] f32) -> y = s x; s is not trained
// scale_parts: (x [T, n]) -> y, and (dy) -> dx

namespace strata {
namespace {

using namespace detail::op_rules;

void vjp_scale(VjpContext& c) { c.emit(Op::scale, {c.grad_output(0)}, {0}, c.attrs()); }
Status launch_scale(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::scale_async(backend, stream, {c.in[0], c.out[0], c.attrs.as<ScaleAttrs>().factor});
}

Specs infer_scale_by(In in, const Attrs&) {
  if (!is_matrix(in[0]) || !is_stored_dtype(in[0]->dtype) || !has_type(in[1], {1}))
    return mismatch("x [T, h], factor [1] f32", in);
  return std::vector<OutputSpec>{{"y", in[0]->shape, in[0]->dtype}};
}
void vjp_scale_by(VjpContext& c) { c.emit(Op::scale_by, {c.grad_output(0), c.in(1)}, {0}); }
Status launch_scale_by(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::scale_async(backend, stream, {c.in[0], c.out[0], 1.0f, c.in[1]});
}

const kernels::ColumnScales& column_scales(const Attrs& attrs) { return attrs.as<ScalePartsAttrs>().scales; }

Specs infer_scale_parts(In in, const Attrs& attrs) {
  const kernels::ColumnScales& s = column_scales(attrs);
  if (!is_matrix(in[0]) || s.parts < 1 || s.parts > kernels::ColumnScales::kMost ||
      in[0]->shape.dim(1) != s.all())
    return mismatch(str("x [T, ", s.all(), "] of 1 to ", kernels::ColumnScales::kMost,
                        " parts, of which it has ", s.parts),
                    in);
  return std::vector<OutputSpec>{{"y", in[0]->shape, in[0]->dtype}};
}
void vjp_scale_parts(VjpContext& c) { c.emit(Op::scale_parts, {c.grad_output(0)}, {0}, c.attrs()); }
Status launch_scale_parts(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::scale_parts_async(backend, stream, {c.in[0], c.out[0], column_scales(c.attrs)});
}

}  // namespace

Value Builder::scale_by(Value x, Value by) { return op(Op::scale_by, {x, by}); }
Value Builder::scale(Value x, float factor) { return op(Op::scale, {x}, ScaleAttrs{.factor = factor}); }

constinit const OpDef detail::op_defs::scale = {
    .n_in = 1,
    .infer_outputs = infer_elementwise,
    .vjp = vjp_scale,
    .in_place = {.out = 0, .in = 0},
    .flops = no_flops,
    .launch = launch_scale,
    .shard = shard_linear_elementwise,
    .operand_columns = same_columns,
};
constinit const OpDef detail::op_defs::scale_by = {
    .n_in = 2,
    .infer_outputs = infer_scale_by,
    .vjp = vjp_scale_by,
    .in_place = {.out = 0, .in = 0},
    .flops = no_flops,
    .launch = launch_scale_by,
    .shard = shard_rows,
};

Value Builder::scale_parts(Value x, const kernels::ColumnScales& scales) {
  return op(Op::scale_parts, {x}, ScalePartsAttrs{.scales = scales});
}

constinit const OpDef detail::op_defs::scale_parts = {
    .n_in = 1,
    .infer_outputs = infer_scale_parts,
    .vjp = vjp_scale_parts,
    .in_place = {.out = 0, .in = 0},
    .flops = per_element,
    .launch = launch_scale_parts,
    .adds_to_gradients = false,
};

}  // namespace strata
