#include <strata/kernels/align/policy_loss.h>

#include "ops/align/loss_rules.h"

// policy_loss: (log_probs [T], old_log_probs [T], advantages [T], weights [T], ref_log_probs [T] or none,
//   divisor [1]) -> loss [1], stats [6]
// policy_loss_backward: (the same) -> dlog_probs [T]

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

Status check_policy_loss(In in, const Attrs& attrs) {
  const auto& a = attrs.as<PolicyLossAttrs>();
  if (!are_vectors(in, {0, 1, 2, 3}) || (in[4] != nullptr && !are_vectors(in, {0, 4})) ||
      !has_type(in[5], {1}) || (a.kl_coef != 0 && in[4] == nullptr))
    return mismatch(
        "log_probs, old_log_probs, advantages, weights [T] f32, ref_log_probs [T] or, without a KL penalty, "
        "none, divisor [1]",
        in);
  return {};
}
Specs infer_policy_loss(In in, const Attrs& attrs) {
  STRATA_TRY(check_policy_loss(in, attrs));
  return std::vector<OutputSpec>{{"loss", {1}}, {"stats", {6}}};
}
Specs infer_policy_loss_backward(In in, const Attrs& attrs) {
  STRATA_TRY(check_policy_loss(in, attrs));
  return std::vector<OutputSpec>{{"dlog_probs", in[0]->shape}};
}
void vjp_policy_loss(VjpContext& c) {
  c.emit(Op::policy_loss_backward, {c.in(0), c.in(1), c.in(2), c.in(3), c.in(4), c.in(5)}, {0}, c.attrs());
}
kernels::PolicyTokens policy_tokens(const OpCall& c) {
  return {c.in[0], c.in[1], c.in[2], c.in[3], or_none(c.in[4])};
}
Status launch_policy_loss(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::policy_loss_async(
      backend, stream, {policy_tokens(c), c.in[5], c.out[0], c.out[1], c.attrs.as<PolicyLossAttrs>()});
}
Status launch_policy_loss_backward(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::policy_loss_backward_async(
      backend, stream, {policy_tokens(c), c.in[5], c.out[0], c.attrs.as<PolicyLossAttrs>()});
}

}  // namespace

LossAndStats Builder::policy_loss(const PolicyLossOperands& of, const PolicyLossAttrs& options) {
  const Value loss =
      op(Op::policy_loss,
         {of.log_probs, of.old_log_probs, of.advantages, of.weights, of.ref_log_probs, of.divisor}, options);
  return {loss, output(loss, 1)};
}

constinit const OpDef detail::op_defs::policy_loss = {
    .n_in = 6,
    .optional_in = 4,
    .infer_outputs = infer_policy_loss,
    .vjp = vjp_policy_loss,
    .only_first_out = true,
    .flops = per_element,
    .launch = launch_policy_loss,
};
constinit const OpDef detail::op_defs::policy_loss_backward = {
    .n_in = 6,
    .optional_in = 4,
    .infer_outputs = infer_policy_loss_backward,
    .flops = per_element,
    .launch = launch_policy_loss_backward,
};

}  // namespace strata
