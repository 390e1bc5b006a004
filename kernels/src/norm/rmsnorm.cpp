#include <strata/kernels/rmsnorm.h>

#include "cuda_ops.h"
#include "op.h"

namespace strata::kernels {

Status rmsnorm_forward_async(Backend& backend, Stream& stream, const RmsnormForwardArgs& a) {
  const std::int64_t rows = detail::row_count(a.x);
  const std::int64_t h = detail::row_length(a.x);
  STRATA_TRY(detail::Check("rmsnorm_forward", "x", a.x)
                 .rows("x", a.x, rows, h)
                 .shape("weight", a.weight, a.x.dtype, {h})
                 .rows("y", a.y, rows, h)
                 .elements("rstd", a.rstd, DType::f32, rows)
                 .optional_rows("added", a.added, rows, h)
                 .optional_rows("sum", a.sum, rows, h)
                 .require(detail::is_present(a.added) == detail::is_present(a.sum),
                          "added and sum must be given together")
                 .require(h >= 1 && a.eps >= 0.0f, "rows have ", h, " elements and eps is ", a.eps,
                          "; rows need at least 1 element, and eps must be 0 or more")
                 .status());
  constexpr detail::OpImpl<RmsnormForwardArgs> op = {"rmsnorm_forward", &rmsnorm_forward_host,
                                                     &cuda::rmsnorm_forward};
  return detail::enqueue(backend, stream, op, a, {a.x, a.weight, a.added}, {a.y, a.rstd, a.sum});
}

std::size_t rmsnorm_backward_workspace_bytes(std::int64_t rows, std::int64_t hidden) noexcept {
  return static_cast<std::size_t>(detail::row_blocks(rows).count * hidden) * sizeof(float);
}

Status rmsnorm_backward_async(Backend& backend, Stream& stream, const RmsnormBackwardArgs& a) {
  const std::int64_t rows = detail::row_count(a.x);
  const std::int64_t h = detail::row_length(a.x);
  STRATA_TRY(detail::Check("rmsnorm_backward", "x", a.x)
                 .rows("x", a.x, rows, h)
                 .shape("weight", a.weight, a.x.dtype, {h})
                 .elements("rstd", a.rstd, DType::f32, rows)
                 .rows("dy", a.dy, rows, h)
                 .rows("dx", a.dx, rows, h)
                 .gradient("dweight", a.dweight, {h}, a.accumulate_dweight)
                 .optional_rows("residual", a.residual, rows, h)
                 .require(h >= 1, "x has rows of 0 elements")
                 .workspace(a.workspace, rmsnorm_backward_workspace_bytes(rows, h))
                 .status());
  constexpr detail::OpImpl<RmsnormBackwardArgs> op = {"rmsnorm_backward", &rmsnorm_backward_host,
                                                      &cuda::rmsnorm_backward};
  return detail::enqueue(backend, stream, op, a, {a.x, a.weight, a.rstd, a.dy, a.residual}, {a.dx, a.dweight},
                         a.workspace);
}

namespace {

template <class Args>
detail::Check check_qk(const char* op, const Args& a) {
  const std::int64_t rows = detail::row_count(a.qkv);
  const std::int64_t n = detail::row_length(a.q_weight), m = detail::row_length(a.k_weight);
  detail::Check check(op, "qkv", a.qkv);
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
                 .rows("y", a.y, detail::row_count(a.qkv), detail::row_length(a.qkv))
                 .require(a.eps >= 0.0f, "eps is ", a.eps, "; it must be 0 or more")
                 .status());
  constexpr detail::OpImpl<QkNormForwardArgs> op = {"qk_norm_forward", &qk_norm_forward_host,
                                                    &cuda::qk_norm_forward};
  return detail::enqueue(backend, stream, op, a, {a.qkv, a.q_weight, a.k_weight}, {a.y, a.rstd});
}

std::size_t qk_norm_backward_workspace_bytes(std::int64_t rows, std::int64_t q_elems,
                                             std::int64_t k_elems) noexcept {
  return static_cast<std::size_t>(detail::row_blocks(rows).count * (q_elems + k_elems)) * sizeof(float);
}

Status qk_norm_backward_async(Backend& backend, Stream& stream, const QkNormBackwardArgs& a) {
  const std::int64_t rows = detail::row_count(a.qkv);
  const std::int64_t n = detail::row_length(a.q_weight), m = detail::row_length(a.k_weight);
  STRATA_TRY(check_qk("qk_norm_backward", a)
                 .rows("dy", a.dy, rows, detail::row_length(a.qkv))
                 .rows("dx", a.dx, rows, detail::row_length(a.qkv))
                 .gradient("dq_weight", a.dq_weight, {n}, a.accumulate_dq_weight)
                 .gradient("dk_weight", a.dk_weight, {m}, a.accumulate_dk_weight)
                 .workspace(a.workspace, qk_norm_backward_workspace_bytes(rows, n, m))
                 .status());
  constexpr detail::OpImpl<QkNormBackwardArgs> op = {"qk_norm_backward", &qk_norm_backward_host,
                                                     &cuda::qk_norm_backward};
  return detail::enqueue(backend, stream, op, a, {a.qkv, a.q_weight, a.k_weight, a.rstd, a.dy},
                         {a.dx, a.dq_weight, a.dk_weight}, a.workspace);
}

}  // namespace strata::kernels
