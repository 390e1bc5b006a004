#include <strata/kernels/align/value_loss.h>

#include "ops/align/loss_rules.h"

// value_loss: (values [T], old_values [T] or none, returns [T], weights [T], divisor [1]) -> loss [1], stats
//   [4]
// value_loss_backward: (the same) -> dvalues [T]

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

Status check_value_loss(In in, const Attrs& attrs) {
  const auto& a = attrs.as<ValueLossAttrs>();
  if (!are_vectors(in, {0, 2, 3}) || (in[1] != nullptr && !are_vectors(in, {0, 1})) ||
      !has_type(in[4], {1}) || (a.clip > 0 && in[1] == nullptr))
    return mismatch("values, returns, weights [T] f32, old_values [T] or, without a clip, none, divisor [1]",
                    in);
  return {};
}
Specs infer_value_loss(In in, const Attrs& attrs) {
  STRATA_TRY(check_value_loss(in, attrs));
  return std::vector<OutputSpec>{{"loss", {1}}, {"stats", {4}}};
}
Specs infer_value_loss_backward(In in, const Attrs& attrs) {
  STRATA_TRY(check_value_loss(in, attrs));
  return std::vector<OutputSpec>{{"dvalues", in[0]->shape}};
}
void vjp_value_loss(VjpContext& c) {
  c.emit(Op::value_loss_backward, {c.in(0), c.in(1), c.in(2), c.in(3), c.in(4)}, {0}, c.attrs());
}
kernels::ValueTokens value_tokens(const OpCall& c) { return {c.in[0], or_none(c.in[1]), c.in[2], c.in[3]}; }
Status launch_value_loss(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::value_loss_async(
      backend, stream, {value_tokens(c), c.in[4], c.out[0], c.out[1], c.attrs.as<ValueLossAttrs>()});
}
Status launch_value_loss_backward(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::value_loss_backward_async(
      backend, stream, {value_tokens(c), c.in[4], c.out[0], c.attrs.as<ValueLossAttrs>()});
}

}  // namespace

LossAndStats Builder::value_loss(const ValueLossOperands& of, const ValueLossAttrs& options) {
  const Value loss =
      op(Op::value_loss, {of.values, of.old_values, of.returns, of.weights, of.divisor}, options);
  return {loss, output(loss, 1)};
}

constinit const OpDef detail::op_defs::value_loss = {
    .n_in = 5,
    .optional_in = 1,
    .infer_outputs = infer_value_loss,
    .vjp = vjp_value_loss,
    .only_first_out = true,
    .flops = per_element,
    .launch = launch_value_loss,
};
constinit const OpDef detail::op_defs::value_loss_backward = {
    .n_in = 5,
    .optional_in = 1,
    .infer_outputs = infer_value_loss_backward,
    .flops = per_element,
    .launch = launch_value_loss_backward,
};

}  // namespace strata
