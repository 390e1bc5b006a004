#include <strata/kernels/linear_cross_entropy.h>

#include <algorithm>

#include <strata/dispatch/op.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/linear.h>

#include "loss/head.h"

namespace strata::kernels {
namespace {

dispatch::Check check_forward(const char* op, const LinearCrossEntropyArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.x);
  const std::int64_t k = dispatch::row_length(a.x);
  const std::int64_t vocab = a.w.shape.rank == 2 ? a.w.shape.dim(0) : 0;
  dispatch::Check check(op, "x", a.x);
  check.rows("x", a.x, rows, k)
      .shape("w", a.w, a.x.dtype, {vocab, k})
      .elements("targets", a.targets, DType::i32, rows)
      .optional_elements("lse", a.lse, DType::f32, rows)
      .require(vocab >= 1, "logits have rows of 0 elements")
      .require(a.softcap >= 0, "softcap is ", a.softcap, "; it must be 0 or more")
      .optional_elements("divisor", a.divisor, DType::f32, 1)
      .workspace(a.workspace, linear_cross_entropy_workspace_bytes(rows, vocab, a.x.dtype, a.blocks));
  return check;
}

dispatch::Check check_losses(dispatch::Check check, const LinearCrossEntropyArgs& a) {
  check.elements("losses", a.losses, DType::f32, dispatch::row_count(a.x))
      .elements("mean_loss", a.mean_loss, DType::f32, 1);
  return check;
}

}  // namespace

STRATA_OP(linear_cross_entropy, LinearCrossEntropyArgs);
STRATA_OP(linear_cross_entropy_backward, LinearCrossEntropyBackwardArgs);
STRATA_OP(linear_log_sum_exp, LinearCrossEntropyArgs);
STRATA_OP(merge_losses, MergeLossesArgs);

std::size_t linear_cross_entropy_workspace_bytes(std::int64_t rows, std::int64_t vocab, DType dtype,
                                                 HeadBlocks blocks) noexcept {
  const std::int64_t block = head_block_rows(rows, vocab, blocks);
  const std::size_t dlogits_bytes =
      dtype == DType::f32
          ? 0
          : static_cast<std::size_t>(head_gradient_rows(rows, vocab, dtype, blocks) * vocab) * size_of(dtype);
  return detail::logits_bytes(block, vocab) + dlogits_bytes;
}

std::size_t linear_cross_entropy_gemm_workspace_bytes(std::int64_t rows, std::int64_t vocab,
                                                      std::int64_t k) noexcept {
  const std::int64_t block = head_block_rows(rows, vocab, HeadBlocks::device);  // the larger ones
  return std::max(
      {gemm_workspace_bytes(block, vocab), gemm_workspace_bytes(block, k), gemm_workspace_bytes(vocab, k)});
}

Status linear_cross_entropy_async(Backend& backend, Stream& stream, const LinearCrossEntropyArgs& a) {
  STRATA_TRY(check_losses(check_forward("linear_cross_entropy", a), a).status());
  return dispatch::enqueue(backend, stream, linear_cross_entropy_op, a, {a.x, a.w, a.targets, a.divisor},
                           {a.losses, a.mean_loss}, a.workspace);
}

Status linear_cross_entropy_backward_async(Backend& backend, Stream& stream,
                                           const LinearCrossEntropyBackwardArgs& args) {
  const LinearCrossEntropyArgs& a = args.forward;
  const std::int64_t rows = dispatch::row_count(a.x);
  const std::int64_t k = dispatch::row_length(a.x);
  const bool is_part = dispatch::is_present(a.lse);
  dispatch::Check check = check_forward("linear_cross_entropy_backward", a);
  if (!is_part) check = check_losses(std::move(check), a);
  if (dispatch::is_present(args.dx)) check.rows("dx", args.dx, rows, k);
  if (dispatch::is_present(args.dw)) check.shape("dw", args.dw, DType::f32, a.w.shape);
  STRATA_TRY(check.status());
  return dispatch::enqueue(
      backend, stream, linear_cross_entropy_backward_op, args, {a.x, a.w, a.targets, a.divisor, a.lse},
      {args.dx, args.dw, is_part ? TensorView{} : a.losses, is_part ? TensorView{} : a.mean_loss},
      a.workspace);
}

Status linear_log_sum_exp_async(Backend& backend, Stream& stream, const LinearCrossEntropyArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.x);
  dispatch::Check check = check_forward("linear_log_sum_exp", a);
  check.elements("lse", a.lse, DType::f32, rows).elements("losses", a.losses, DType::f32, rows);
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, linear_log_sum_exp_op, a, {a.x, a.w, a.targets},
                           {a.lse, a.losses}, a.workspace);
}

Status merge_losses_async(Backend& backend, Stream& stream, const MergeLossesArgs& a) {
  const std::int64_t rows = a.targets.n_elems(), parts = a.stats.shape.rank == 2 ? a.stats.shape.dim(0) : 0;
  dispatch::Check check("merge_losses", "stats", a.stats);
  check.require(parts >= 2 && parts % 2 == 0, "stats have ", parts, " rows; each part has two")
      .shape("stats", a.stats, DType::f32, {parts, rows})
      .elements("lse", a.lse, DType::f32, rows)
      .elements("losses", a.losses, DType::f32, rows)
      .elements("mean_loss", a.mean_loss, DType::f32, 1)
      .optional_elements("divisor", a.divisor, DType::f32, 1);
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, merge_losses_op, a, {a.stats, a.targets, a.divisor},
                           {a.lse, a.losses, a.mean_loss});
}

}  // namespace strata::kernels
