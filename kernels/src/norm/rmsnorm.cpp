#include <strata/kernels/rmsnorm.h>

#include <strata/ops/op.h>
#include <strata/ops/rows.h>

#include "cuda/norm/launches.h"
#include "norm/norm_checks.h"
#include "work_split.h"

namespace strata::kernels {

Status rmsnorm_forward_async(Backend& backend, Stream& stream, const RmsnormForwardArgs& a) {
  STRATA_TRY(detail::check_norm_forward("rmsnorm_forward", a).status());
  constexpr ops::OpImpl<RmsnormForwardArgs> op = {"rmsnorm_forward", &rmsnorm_forward_host,
                                                  &cuda::rmsnorm_forward};
  return ops::enqueue(backend, stream, op, a, {a.x, a.weight, a.added}, {a.y, a.rstd, a.sum});
}

std::size_t rmsnorm_backward_workspace_bytes(std::int64_t rows, std::int64_t hidden) noexcept {
  return detail::row_sums_bytes(rows, hidden);
}

Status rmsnorm_backward_async(Backend& backend, Stream& stream, const RmsnormBackwardArgs& a) {
  const std::size_t bytes = rmsnorm_backward_workspace_bytes(ops::row_count(a.x), ops::row_length(a.x));
  STRATA_TRY(detail::check_norm_backward("rmsnorm_backward", a, bytes).status());
  constexpr ops::OpImpl<RmsnormBackwardArgs> op = {"rmsnorm_backward", &rmsnorm_backward_host,
                                                   &cuda::rmsnorm_backward};
  return ops::enqueue(backend, stream, op, a, {a.x, a.weight, a.rstd, a.dy, a.residual}, {a.dx, a.dweight},
                      a.workspace);
}

namespace {

template <class Args>
ops::Check check_qk(const char* op, const Args& a) {
  const std::int64_t rows = ops::row_count(a.qkv);
  const std::int64_t n = ops::row_length(a.q_weight), m = ops::row_length(a.k_weight);
  ops::Check check(op, "qkv", a.qkv);
  check
      .require(a.heads >= 1 && a.kv_heads >= 1, a.heads, " heads and ", a.kv_heads,
               " key heads; both must be at least 1")
      .shape("q_weight", a.q_weight, a.qkv.dtype, {n})
      .shape("k_weight", a.k_weight, a.qkv.dtype, {m})
      .rows("qkv", a.qkv, rows, a.heads * n + 2 * a.kv_heads * m)
      .elements("rstd", a.rstd, DType::f32, rows * (a.heads + a.kv_heads));
  return check;
}

}  // namespace

Status qk_norm_forward_async(Backend& backend, Stream& stream, const QkNormForwardArgs& a) {
  STRATA_TRY(check_qk("qk_norm_forward", a)
                 .rows("y", a.y, ops::row_count(a.qkv), ops::row_length(a.qkv))
                 .require(a.eps >= 0.0f, "eps is ", a.eps, "; it must be 0 or more")
                 .status());
  constexpr ops::OpImpl<QkNormForwardArgs> op = {"qk_norm_forward", &qk_norm_forward_host,
                                                 &cuda::qk_norm_forward};
  return ops::enqueue(backend, stream, op, a, {a.qkv, a.q_weight, a.k_weight}, {a.y, a.rstd});
}

std::size_t qk_norm_backward_workspace_bytes(std::int64_t rows, std::int64_t q_elems,
                                             std::int64_t k_elems) noexcept {
  return detail::row_sums_bytes(rows, q_elems + k_elems);
}

Status qk_norm_backward_async(Backend& backend, Stream& stream, const QkNormBackwardArgs& a) {
  const std::int64_t rows = ops::row_count(a.qkv);
  const std::int64_t n = ops::row_length(a.q_weight), m = ops::row_length(a.k_weight);
  STRATA_TRY(check_qk("qk_norm_backward", a)
                 .rows("dy", a.dy, rows, ops::row_length(a.qkv))
                 .rows("dx", a.dx, rows, ops::row_length(a.qkv))
                 .gradient("dq_weight", a.dq_weight, {n}, a.accumulate_dq_weight)
                 .gradient("dk_weight", a.dk_weight, {m}, a.accumulate_dk_weight)
                 .workspace(a.workspace, qk_norm_backward_workspace_bytes(rows, n, m))
                 .status());
  constexpr ops::OpImpl<QkNormBackwardArgs> op = {"qk_norm_backward", &qk_norm_backward_host,
                                                  &cuda::qk_norm_backward};
  return ops::enqueue(backend, stream, op, a, {a.qkv, a.q_weight, a.k_weight, a.rstd, a.dy},
                      {a.dx, a.dq_weight, a.dk_weight}, a.workspace);
}

}  // namespace strata::kernels
