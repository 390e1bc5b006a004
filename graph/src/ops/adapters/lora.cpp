#include <strata/kernels/lora.h>

#include <strata/runtime/str.h>

#include "ops/adapters/lora_parts.h"
#include "ops/op_defs.h"

// lora_up: (base [T, N], u [T, sum of ranks], b [elements of all parts]) -> y [T, N]
// lora_up_backward_input: (dy [T, N], b) -> du [T, sum of ranks]
// lora_up_backward_weight: (dy [T, N], u, b for its shape) -> db
// The gradient of base is dy.

namespace strata {

detail::PartSizes detail::sizes_of(const LoraAttrs& parts, std::int64_t rows) noexcept {
  PartSizes sizes;
  std::int64_t end = 0;
  for (const LoraPart& part : parts.all()) {
    sizes.ranks += part.rank;
    sizes.rows += part.rows;
    sizes.elems += part.rows * part.rank;
    sizes.in_order = sizes.in_order && part.rank > 0 && part.rows > 0 && part.first_row >= end &&
                     part.first_row + part.rows <= rows;
    end = part.first_row + part.rows;
  }
  sizes.in_order = sizes.in_order && parts.n > 0;
  return sizes;
}

namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;
using detail::PartSizes;
using detail::sizes_of;

bool fits(const PartSizes& sizes, const ValueInfo* y, const ValueInfo* b) {
  return sizes.in_order && has_type(b, {sizes.elems}, y->dtype);
}

Specs infer_lora_up(In in, const Attrs& attrs) {
  const auto& a = attrs.as<LoraAttrs>();
  if (!is_matrix(in[0]) || !is_matrix(in[1])) return mismatch("base [T, N] and u [T, ranks]", in);
  const PartSizes sizes = sizes_of(a, in[0]->shape.dim(1));
  if (!fits(sizes, in[0], in[2]) || !has_type(in[1], {in[0]->shape.dim(0), sizes.ranks}, in[0]->dtype))
    return mismatch(str("base [T, N], u [T, ", sizes.ranks, "], b [", sizes.elems, "], of one dtype, and ",
                        a.n, " parts in the order of their rows"),
                    in);
  return std::vector<OutputSpec>{{"y", in[0]->shape, in[0]->dtype}};
}
void vjp_lora_up(VjpContext& c) {
  const ValueId dy = c.grad_output(0);
  if (c.needs_input_grad(2)) c.emit(Op::lora_up_backward_weight, {dy, c.in(1), c.in(2)}, {2}, c.attrs());
  if (c.needs_input_grad(1)) c.emit(Op::lora_up_backward_input, {dy, c.in(2)}, {1}, c.attrs());
  if (c.needs_input_grad(0)) c.propagate_grad(0, dy);
}
const LoraAttrs& parts_of(const OpCall& c) { return c.attrs.as<LoraAttrs>(); }
Status launch_lora_up(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::lora_up_async(backend, stream, {c.in[0], c.in[1], c.in[2], c.out[0], parts_of(c)});
}

Specs infer_lora_up_backward_input(In in, const Attrs& attrs) {
  if (!is_matrix(in[0])) return mismatch("dy [T, N]", in);
  const PartSizes sizes = sizes_of(attrs.as<LoraAttrs>(), in[0]->shape.dim(1));
  if (!fits(sizes, in[0], in[1])) return mismatch(str("dy [T, N], b [", sizes.elems, "], of one dtype"), in);
  return std::vector<OutputSpec>{{"du", {in[0]->shape.dim(0), sizes.ranks}, in[0]->dtype}};
}
Status launch_lora_up_backward_input(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::lora_up_backward_input_async(backend, stream, {c.in[0], c.in[1], c.out[0], parts_of(c)});
}

Specs infer_lora_up_backward_weight(In in, const Attrs&) {
  return std::vector<OutputSpec>{{"db", in[2]->shape, in[2]->dtype}};
}
Status launch_lora_up_backward_weight(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::lora_up_backward_weight_async(backend, stream,
                                                {c.in[0], c.in[1], c.out[0], parts_of(c), accumulates(c, 0)});
}

// Each element of a part's matrix is multiplied once with each row.
double flops_lora(In in, In, const Attrs& attrs) {
  return 2.0 * static_cast<double>(in[0]->shape.dim(0)) *
         static_cast<double>(sizes_of(attrs.as<LoraAttrs>(), in[0]->shape.dim(1)).elems);
}

}  // namespace

Value Builder::lora_up(Value base, Value u, Value b, const LoraAttrs& parts) {
  return op(Op::lora_up, {base, u, b}, parts);
}

// It counts as elementwise: since its inner extent is a rank, reading and writing y takes its time.
constinit const OpDef detail::op_defs::lora_up = {
    .n_in = 3,
    .infer_outputs = infer_lora_up,
    .vjp = vjp_lora_up,
    .in_place = {.out = 0, .in = 0},
    .flops = flops_lora,
    .launch = launch_lora_up,
};
constinit const OpDef detail::op_defs::lora_up_backward_input = {
    .n_in = 2,
    .infer_outputs = infer_lora_up_backward_input,
    .flops = flops_lora,
    .launch = launch_lora_up_backward_input,
};
constinit const OpDef detail::op_defs::lora_up_backward_weight = {
    .n_in = 3,
    .shape_only_in = 2,
    .infer_outputs = infer_lora_up_backward_weight,
    .flops = flops_lora,
    .launch = launch_lora_up_backward_weight,
};

}  // namespace strata
