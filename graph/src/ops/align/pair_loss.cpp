#include <strata/kernels/align/pair_loss.h>

#include "ops/align/loss_rules.h"

// pair_loss: (scores [2 P], ref_scores [2 P] or none, weights [P], margins [P] or none, divisor [1])
//   -> loss [1], stats [4]
// pair_loss_backward: (the same) -> dscores [2 P]

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

Status check_pair_loss(In in, const Attrs& attrs) {
  const auto& a = attrs.as<PairLossAttrs>();
  const bool is_ipo = a.kind == kernels::PairLossKind::ipo;
  if (!are_vectors(in, {0}) || !are_vectors(in, {2}) ||
      in[0]->shape.n_elems() != 2 * in[2]->shape.n_elems() ||
      (in[1] != nullptr && !are_vectors(in, {0, 1})) || (in[3] != nullptr && !are_vectors(in, {2, 3})) ||
      !has_type(in[4], {1}) || !(a.beta > 0) || (is_ipo && in[3] != nullptr))
    return mismatch(
        "scores [2 P] f32, ref_scores [2 P] or none, weights [P], margins [P] or none (of ipo, none), "
        "divisor [1], a beta above 0",
        in);
  return {};
}
Specs infer_pair_loss(In in, const Attrs& attrs) {
  STRATA_TRY(check_pair_loss(in, attrs));
  return std::vector<OutputSpec>{{"loss", {1}}, {"stats", {4}}};
}
Specs infer_pair_loss_backward(In in, const Attrs& attrs) {
  STRATA_TRY(check_pair_loss(in, attrs));
  return std::vector<OutputSpec>{{"dscores", in[0]->shape}};
}
void vjp_pair_loss(VjpContext& c) {
  c.emit(Op::pair_loss_backward, {c.in(0), c.in(1), c.in(2), c.in(3), c.in(4)}, {0}, c.attrs());
}
kernels::ScorePairs score_pairs(const OpCall& c) {
  return {c.in[0], or_none(c.in[1]), c.in[2], or_none(c.in[3])};
}
Status launch_pair_loss(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::pair_loss_async(backend, stream,
                                  {score_pairs(c), c.in[4], c.out[0], c.out[1], c.attrs.as<PairLossAttrs>()});
}
Status launch_pair_loss_backward(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::pair_loss_backward_async(backend, stream,
                                           {score_pairs(c), c.in[4], c.out[0], c.attrs.as<PairLossAttrs>()});
}

}  // namespace

LossAndStats Builder::pair_loss(const PairLossOperands& of, const PairLossAttrs& options) {
  const Value loss =
      op(Op::pair_loss, {of.scores, of.ref_scores, of.weights, of.margins, of.divisor}, options);
  return {loss, output(loss, 1)};
}

constinit const OpDef detail::op_defs::pair_loss = {
    .n_in = 5,
    .optional_in = {1, 3},
    .infer_outputs = infer_pair_loss,
    .vjp = vjp_pair_loss,
    .only_first_out = true,
    .flops = per_element,
    .launch = launch_pair_loss,
};
constinit const OpDef detail::op_defs::pair_loss_backward = {
    .n_in = 5,
    .optional_in = {1, 3},
    .infer_outputs = infer_pair_loss_backward,
    .flops = per_element,
    .launch = launch_pair_loss_backward,
};

}  // namespace strata
