#include <strata/kernels/recurrent/gated_rmsnorm.h>

#include <algorithm>

#include <strata/dispatch/op.h>
#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>

#include "dtype_dispatch.h"
#include "partial_sums.h"
#include "recurrent/gated_norm_shape.h"
#include "recurrent_table.h"
#include "work_split.h"

namespace strata::kernels {
STRATA_OP(gated_rmsnorm_forward, GatedRmsnormForwardArgs);
STRATA_OP(gated_rmsnorm_backward, GatedRmsnormBackwardArgs);

template <>
const detail::RecurrentTable<float>& detail::recurrent_table<float>() noexcept {
  return STRATA_ACTIVE_TABLE(recurrent_f32);
}
template <>
const detail::RecurrentTable<bf16>& detail::recurrent_table<bf16>() noexcept {
  return STRATA_ACTIVE_TABLE(recurrent_bf16);
}
template <>
const detail::RecurrentTable<f16>& detail::recurrent_table<f16>() noexcept {
  return STRATA_ACTIVE_TABLE(recurrent_f16);
}

namespace {

template <class T>
void normalize_heads(const GatedRmsnormForwardArgs& a, ThreadPool& pool) {
  const detail::GatedNormShape shape = detail::gated_norm_shape(a.x, a.weight, a.head_dim);
  const std::int64_t n = shape.n;
  dispatch::parallel_for_ranges(
      pool, shape.heads, detail::rows_per_item(n), [&](std::int64_t first, std::int64_t heads) {
        for (std::int64_t i = first; i < first + heads; ++i)
          detail::recurrent_table<T>().gated_norm_forward[a.gate_first ? 1 : 0](
              a.x.as<T>() + i * n, a.z.as<T>() + i * n, a.weight.as<T>() + i % shape.of_weight * n,
              a.y.as<T>() + i * n, a.rstd.as<float>() + i, a.eps, n);
      });
}

template <class T>
void normalize_heads_backward(const GatedRmsnormBackwardArgs& a, ThreadPool& pool) {
  const detail::GatedNormShape shape = detail::gated_norm_shape(a.x, a.weight, a.head_dim);
  const std::int64_t n = shape.n, columns = shape.of_weight * n;
  auto* const partials = reinterpret_cast<float*>(a.workspace.data);
  const std::int64_t blocks = detail::sum_row_blocks(
      shape.heads / shape.of_weight, columns, partials, pool, [&](std::int64_t row, float* dweight) {
        for (std::int64_t k = 0; k < shape.of_weight; ++k) {
          const std::int64_t i = row * shape.of_weight + k;
          detail::recurrent_table<T>().gated_norm_backward[a.gate_first ? 1 : 0](
              a.x.as<T>() + i * n, a.z.as<T>() + i * n, a.weight.as<T>() + k * n, a.rstd.as<float>()[i],
              a.dy.as<T>() + i * n, a.dx.as<T>() + i * n, a.dz.as<T>() + i * n, dweight + k * n, n);
        }
      });
  detail::sum_partials(partials, blocks, columns, a.dweight, a.accumulate_dweight, pool);
}

/// The operands that both ops have.
template <class Args>
void check_heads(dispatch::Check& check, const Args& a, std::int64_t rows, std::int64_t width) {
  const std::int64_t of_weight = std::max<std::int64_t>(1, dispatch::row_length(a.weight)),
                     n = a.head_dim > 0 ? a.head_dim : of_weight;
  check.rows("x", a.x, rows, width)
      .rows("z", a.z, rows, width)
      .elements("weight", a.weight, a.x.dtype, of_weight)
      .require(width % n == 0, "rows have ", width, " elements; they must be heads of ", n)
      .require(of_weight == n || of_weight == width, "weight has ", of_weight, " elements; it must have ", n,
               ", those of a head, or ", width, ", those of a row")
      .elements("rstd", a.rstd, DType::f32, rows * width / n);
}

}  // namespace

void gated_rmsnorm_forward_host(const GatedRmsnormForwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.x.dtype, [&]<class T>(std::type_identity<T>) { normalize_heads<T>(a, pool); });
}
void gated_rmsnorm_backward_host(const GatedRmsnormBackwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.x.dtype,
                         [&]<class T>(std::type_identity<T>) { normalize_heads_backward<T>(a, pool); });
}

Status gated_rmsnorm_forward_async(Backend& backend, Stream& stream, const GatedRmsnormForwardArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.x), width = dispatch::row_length(a.x);
  dispatch::Check check("gated_rmsnorm_forward", "x", a.x);
  check_heads(check, a, rows, width);
  STRATA_TRY(check.rows("y", a.y, rows, width)
                 .require(a.eps >= 0.0f, "eps is ", a.eps, "; it must be 0 or more")
                 .status());
  return dispatch::enqueue(backend, stream, gated_rmsnorm_forward_op, a, {a.x, a.z, a.weight}, {a.y, a.rstd});
}

std::size_t gated_rmsnorm_backward_workspace_bytes(std::int64_t elems, std::int64_t of_weight) noexcept {
  return of_weight > 0 ? detail::row_sums_bytes(elems / of_weight, of_weight) : 0;
}
Status gated_rmsnorm_backward_async(Backend& backend, Stream& stream, const GatedRmsnormBackwardArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.x), width = dispatch::row_length(a.x),
                     n = dispatch::row_length(a.weight);
  dispatch::Check check("gated_rmsnorm_backward", "x", a.x);
  check_heads(check, a, rows, width);
  STRATA_TRY(check.rows("dy", a.dy, rows, width)
                 .rows("dx", a.dx, rows, width)
                 .rows("dz", a.dz, rows, width)
                 .gradient("dweight", a.dweight, {n}, a.accumulate_dweight)
                 .workspace(a.workspace, gated_rmsnorm_backward_workspace_bytes(rows * width, n))
                 .status());
  return dispatch::enqueue(backend, stream, gated_rmsnorm_backward_op, a, {a.x, a.z, a.weight, a.rstd, a.dy},
                           {a.dx, a.dz, a.dweight}, a.workspace);
}

}  // namespace strata::kernels
