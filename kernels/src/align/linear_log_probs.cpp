#include <strata/kernels/align/linear_log_probs.h>

#include <strata/dispatch/op.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/linear_cross_entropy.h>

namespace strata::kernels {
namespace {

template <class Args>
dispatch::Check check_head(const char* op, const Args& a) {
  const std::int64_t rows = dispatch::row_count(a.x), k = dispatch::row_length(a.x);
  const std::int64_t vocab = a.w.shape.rank == 2 ? a.w.shape.dim(0) : 0;
  dispatch::Check check(op, "x", a.x);
  check.rows("x", a.x, rows, k)
      .shape("w", a.w, a.x.dtype, {vocab, k})
      .elements("targets", a.targets, DType::i32, rows)
      .elements("lse", a.lse, DType::f32, rows)
      .require(vocab >= 1, "logits have rows of 0 elements")
      .require(a.scaling.softcap >= 0, "softcap is ", a.scaling.softcap, "; it must be 0 or more")
      .require(a.scaling.temperature > 0, "temperature is ", a.scaling.temperature, "; it must be above 0")
      .workspace(a.workspace, linear_cross_entropy_workspace_bytes(rows, vocab, a.x.dtype, a.blocks));
  return check;
}

}  // namespace

STRATA_OP(linear_log_probs, LinearLogProbsArgs);
STRATA_OP(linear_log_probs_backward, LinearLogProbsBackwardArgs);

Status linear_log_probs_async(Backend& backend, Stream& stream, const LinearLogProbsArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.x);
  STRATA_TRY(check_head("linear_log_probs", a)
                 .elements("log_probs", a.log_probs, DType::f32, rows)
                 .optional_elements("entropies", a.entropies, DType::f32, rows)
                 .status());
  return dispatch::enqueue(backend, stream, linear_log_probs_op, a, {a.x, a.w, a.targets},
                           {a.log_probs, a.lse, a.entropies}, a.workspace);
}

Status linear_log_probs_backward_async(Backend& backend, Stream& stream,
                                       const LinearLogProbsBackwardArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.x);
  dispatch::Check check = check_head("linear_log_probs_backward", a);
  check.elements("dlog_probs", a.dlog_probs, DType::f32, rows)
      .optional_rows("dx", a.dx, rows, dispatch::row_length(a.x));
  if (dispatch::is_present(a.dw)) check.shape("dw", a.dw, DType::f32, a.w.shape);
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, linear_log_probs_backward_op, a,
                           {a.x, a.w, a.targets, a.lse, a.dlog_probs}, {a.dx, a.dw}, a.workspace);
}

}  // namespace strata::kernels
