#include <strata/kernels/align/pair_loss.h>

#include <strata/dispatch/op.h>

#include "align/loss_check.h"
#include "align/loss_host.h"
#include "align/pair_math.h"

namespace strata::kernels {
namespace {

dispatch::Check check_pairs(const char* op, const ScorePairs& p, const PairLossOptions& options) {
  const std::int64_t pairs = p.weights.n_elems();
  const bool is_ipo = options.kind == PairLossKind::ipo;
  dispatch::Check check(op);
  check.elements("weights", p.weights, DType::f32, pairs)
      .elements("scores", p.scores, DType::f32, 2 * pairs)
      .optional_elements("ref_scores", p.ref_scores, DType::f32, 2 * pairs)
      .optional_elements("margins", p.margins, DType::f32, pairs)
      .require(options.beta > 0, "beta is ", options.beta, "; it must be above 0")
      .require(options.label_smoothing >= 0 && options.label_smoothing <= 1, "label_smoothing is ",
               options.label_smoothing, "; it must be from 0 to 1")
      .require(!is_ipo || (options.label_smoothing == 0 && !dispatch::is_present(p.margins)),
               "ipo has neither margins nor label_smoothing");
  return check;
}

}  // namespace

STRATA_OP(pair_loss, PairLossArgs);
STRATA_OP(pair_loss_backward, PairLossBackwardArgs);

void pair_loss_host(const PairLossArgs& a, ThreadPool&) {
  detail::compute_loss(detail::loss_call(detail::pair_loss(a.pairs, a.options), a.pairs.weights, a));
}
void pair_loss_backward_host(const PairLossBackwardArgs& a, ThreadPool& pool) {
  detail::compute_loss_gradient(detail::loss_gradient_call(detail::pair_loss(a.pairs, a.options),
                                                           a.pairs.weights, a.divisor, a.dscores),
                                pool);
}

Status pair_loss_async(Backend& backend, Stream& stream, const PairLossArgs& a) {
  const ScorePairs& p = a.pairs;
  dispatch::Check check = check_pairs("pair_loss", p, a.options);
  detail::check_loss(check, a, 4);
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, pair_loss_op, a,
                           {p.scores, p.ref_scores, p.weights, p.margins, a.divisor}, {a.loss, a.stats});
}

Status pair_loss_backward_async(Backend& backend, Stream& stream, const PairLossBackwardArgs& a) {
  const ScorePairs& p = a.pairs;
  STRATA_TRY(check_pairs("pair_loss_backward", p, a.options)
                 .elements("divisor", a.divisor, DType::f32, 1)
                 .elements("dscores", a.dscores, DType::f32, p.scores.n_elems())
                 .status());
  return dispatch::enqueue(backend, stream, pair_loss_backward_op, a,
                           {p.scores, p.ref_scores, p.weights, p.margins, a.divisor}, {a.dscores});
}

}  // namespace strata::kernels
