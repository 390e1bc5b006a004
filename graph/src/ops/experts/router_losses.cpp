#include <strata/kernels/experts/router_losses.h>

#include <strata/runtime/str.h>

#include "ops/op_defs.h"

// router_sums: (logits [T, E] f32, offsets [E + 1] i32, before [2 E + 1] or none) -> sums [2 E + 1],
// workspace router_sums_backward: (logits, dsums) -> dlogits [T, E] router_losses: (sums [2 E + 1], factor
// [1] or none) -> zero [1], losses [2] router_losses_backward: (sums, factor) -> dsums [2 E + 1]; its
// gradient is that of the loss to which zero
//   was added, which is 1 times the factor
// Through the counts among the sums, the gradient of a layer depends on the choices of all layers.

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

Specs infer_router_sums(In in, const Attrs&) {
  const bool fits = is_matrix(in[0]) && in[0]->dtype == DType::f32;
  const std::int64_t experts = fits ? in[0]->shape.dim(1) : 0;
  const Shape sums = {2 * experts + 1};
  if (!fits || !has_type(in[1], {experts + 1}, DType::i32) || (in[2] != nullptr && !has_type(in[2], sums)))
    return mismatch("logits [T, E] f32, offsets [E + 1] i32, sums before [2 E + 1] f32 or none", in);
  return std::vector<OutputSpec>{
      {"sums", sums}, workspace(kernels::router_sums_workspace_bytes(in[0]->shape.dim(0), experts))};
}
void vjp_router_sums(VjpContext& c) {
  const ValueId grad = c.grad_output(0);
  if (c.needs_input_grad(0)) c.emit(Op::router_sums_backward, {c.in(0), grad}, {0}, c.attrs());
  if (c.in(2) != kNoValue) c.propagate_grad(2, grad);
}
Status launch_router_sums(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::router_sums_async(backend, stream,
                                    {c.in[0], c.in[1], or_none(c.in[2]), c.out[0], as_workspace(c.out[1])});
}

Specs infer_router_sums_backward(In in, const Attrs& attrs) {
  return std::vector<OutputSpec>{{"dlogits", in[0]->shape, attrs.as<RouterSumsAttrs>().gradient}};
}
Status launch_router_sums_backward(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::router_sums_backward_async(backend, stream, {c.in[0], c.in[1], c.out[0]});
}

Specs infer_router_losses(In in, const Attrs& attrs) {
  if (in[0] == nullptr || in[0]->shape.n_elems() % 2 != 1 || !has_type(in[0], {in[0]->shape.n_elems()}) ||
      (in[1] != nullptr && !has_type(in[1], {1})) || attrs.as<RouterLossAttrs>().rows < 1)
    return mismatch(str("sums [2 E + 1] f32 of ", attrs.as<RouterLossAttrs>().rows,
                        " rows (1 or more), factor [1] f32 or none"),
                    in);
  return std::vector<OutputSpec>{{"zero", {1}}, {"losses", {2}}};
}
void vjp_router_losses(VjpContext& c) {
  c.emit(Op::router_losses_backward, {c.in(0), c.in(1)}, {0}, c.attrs());
}
Status launch_router_losses(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::router_losses_async(backend, stream,
                                      {c.in[0], c.out[0], c.out[1], c.attrs.as<RouterLossAttrs>().rows});
}

Specs infer_router_losses_backward(In in, const Attrs&) {
  return std::vector<OutputSpec>{{"dsums", in[0]->shape}};
}
Status launch_router_losses_backward(const OpCall& c, Backend& backend, Stream& stream) {
  const auto& a = c.attrs.as<RouterLossAttrs>();
  return kernels::router_losses_backward_async(
      backend, stream, {c.in[0], or_none(c.in[1]), c.out[0], a.rows, a.aux_coef, a.z_coef});
}

}  // namespace

Value Builder::router_sums(Value logits, const RoutedRows& rows, Value before) {
  return op(Op::router_sums, {logits, rows.offsets, before}, RouterSumsAttrs{.gradient = compute_});
}
AddedLosses Builder::router_losses(Value sums, const RouterLossAttrs& attrs, Value factor) {
  const Value zero = op(Op::router_losses, {sums, factor}, attrs);
  return {zero, output(zero, 1)};
}

constinit const OpDef detail::op_defs::router_sums = {
    .n_in = 3,
    .optional_in = 2,
    .infer_outputs = infer_router_sums,
    .vjp = vjp_router_sums,
    .flops = per_element,
    .launch = launch_router_sums,
};
constinit const OpDef detail::op_defs::router_sums_backward = {
    .n_in = 2,
    .infer_outputs = infer_router_sums_backward,
    .flops = per_element,
    .launch = launch_router_sums_backward,
};
constinit const OpDef detail::op_defs::router_losses = {
    .n_in = 2,
    .optional_in = 1,
    .infer_outputs = infer_router_losses,
    .vjp = vjp_router_losses,
    .only_first_out = true,
    .flops = per_element,
    .launch = launch_router_losses,
};
constinit const OpDef detail::op_defs::router_losses_backward = {
    .n_in = 2,
    .optional_in = 1,
    .infer_outputs = infer_router_losses_backward,
    .flops = per_element,
    .launch = launch_router_losses_backward,
};

}  // namespace strata
