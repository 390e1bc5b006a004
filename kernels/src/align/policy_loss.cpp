#include <strata/kernels/align/policy_loss.h>

#include <strata/dispatch/op.h>

#include "align/loss_check.h"
#include "align/loss_host.h"
#include "align/policy_math.h"

namespace strata::kernels {
namespace {

dispatch::Check check_tokens(const char* op, const PolicyTokens& t, const PolicyLossOptions& options) {
  const std::int64_t n = t.log_probs.n_elems();
  dispatch::Check check(op);
  check.elements("log_probs", t.log_probs, DType::f32, n)
      .elements("old_log_probs", t.old_log_probs, DType::f32, n)
      .elements("advantages", t.advantages, DType::f32, n)
      .elements("weights", t.weights, DType::f32, n)
      .optional_elements("ref_log_probs", t.ref_log_probs, DType::f32, n)
      .require(options.clip_low >= 0 && options.clip_high >= 0, "clip_low is ", options.clip_low,
               " and clip_high is ", options.clip_high, "; both must be 0 or more")
      .require(options.kl_coef == 0 || dispatch::is_present(t.ref_log_probs), "kl_coef is ", options.kl_coef,
               ", but there are no ref_log_probs");
  return check;
}

}  // namespace

STRATA_OP(policy_loss, PolicyLossArgs);
STRATA_OP(policy_loss_backward, PolicyLossBackwardArgs);

void policy_loss_host(const PolicyLossArgs& a, ThreadPool&) {
  detail::compute_loss(detail::loss_call(detail::policy_loss(a.tokens, a.options), a.tokens.weights, a));
}
void policy_loss_backward_host(const PolicyLossBackwardArgs& a, ThreadPool& pool) {
  detail::compute_loss_gradient(detail::loss_gradient_call(detail::policy_loss(a.tokens, a.options),
                                                           a.tokens.weights, a.divisor, a.dlog_probs),
                                pool);
}

Status policy_loss_async(Backend& backend, Stream& stream, const PolicyLossArgs& a) {
  const PolicyTokens& t = a.tokens;
  dispatch::Check check = check_tokens("policy_loss", t, a.options);
  detail::check_loss(check, a, 6);
  STRATA_TRY(check.status());
  return dispatch::enqueue(
      backend, stream, policy_loss_op, a,
      {t.log_probs, t.old_log_probs, t.advantages, t.weights, t.ref_log_probs, a.divisor}, {a.loss, a.stats});
}

Status policy_loss_backward_async(Backend& backend, Stream& stream, const PolicyLossBackwardArgs& a) {
  const PolicyTokens& t = a.tokens;
  STRATA_TRY(check_tokens("policy_loss_backward", t, a.options)
                 .elements("divisor", a.divisor, DType::f32, 1)
                 .elements("dlog_probs", a.dlog_probs, DType::f32, t.log_probs.n_elems())
                 .status());
  return dispatch::enqueue(
      backend, stream, policy_loss_backward_op, a,
      {t.log_probs, t.old_log_probs, t.advantages, t.weights, t.ref_log_probs, a.divisor}, {a.dlog_probs});
}

}  // namespace strata::kernels
