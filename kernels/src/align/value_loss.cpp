#include <strata/kernels/align/value_loss.h>

#include <strata/dispatch/op.h>

#include "align/loss_check.h"
#include "align/loss_host.h"
#include "align/value_math.h"

namespace strata::kernels {
namespace {

dispatch::Check check_tokens(const char* op, const ValueTokens& t, const ValueLossOptions& options) {
  const std::int64_t n = t.values.n_elems();
  dispatch::Check check(op);
  check.elements("values", t.values, DType::f32, n)
      .optional_elements("old_values", t.old_values, DType::f32, n)
      .elements("returns", t.returns, DType::f32, n)
      .elements("weights", t.weights, DType::f32, n)
      .require(options.clip >= 0, "clip is ", options.clip, "; it must be 0 or more")
      .require(options.clip == 0 || dispatch::is_present(t.old_values), "clip is ", options.clip,
               ", but there are no old_values");
  return check;
}

}  // namespace

STRATA_OP(value_loss, ValueLossArgs);
STRATA_OP(value_loss_backward, ValueLossBackwardArgs);

void value_loss_host(const ValueLossArgs& a, ThreadPool&) {
  detail::compute_loss(detail::loss_call(detail::value_loss(a.tokens, a.options), a.tokens.weights, a));
}
void value_loss_backward_host(const ValueLossBackwardArgs& a, ThreadPool& pool) {
  detail::compute_loss_gradient(detail::loss_gradient_call(detail::value_loss(a.tokens, a.options),
                                                           a.tokens.weights, a.divisor, a.dvalues),
                                pool);
}

Status value_loss_async(Backend& backend, Stream& stream, const ValueLossArgs& a) {
  const ValueTokens& t = a.tokens;
  dispatch::Check check = check_tokens("value_loss", t, a.options);
  detail::check_loss(check, a, 4);
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, value_loss_op, a,
                           {t.values, t.old_values, t.returns, t.weights, a.divisor}, {a.loss, a.stats});
}

Status value_loss_backward_async(Backend& backend, Stream& stream, const ValueLossBackwardArgs& a) {
  const ValueTokens& t = a.tokens;
  STRATA_TRY(check_tokens("value_loss_backward", t, a.options)
                 .elements("divisor", a.divisor, DType::f32, 1)
                 .elements("dvalues", a.dvalues, DType::f32, t.values.n_elems())
                 .status());
  return dispatch::enqueue(backend, stream, value_loss_backward_op, a,
                           {t.values, t.old_values, t.returns, t.weights, a.divisor}, {a.dvalues});
}

}  // namespace strata::kernels
