#include <strata/kernels/experts/router_losses.h>

#include <algorithm>

#include <strata/dispatch/cuda/emulation/half_warp.h>
#include <strata/dispatch/op.h>
#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>

#include "align/loss_operands.h"
#include "dtype_dispatch.h"
#include "experts/router_loss_math.h"
#include "experts/router_math.h"
#include "work_split.h"

namespace strata::kernels {
STRATA_OP(router_sums, RouterSumsArgs);
STRATA_OP(router_sums_backward, RouterSumsBackwardArgs);
STRATA_OP(router_losses, RouterLossesArgs);
STRATA_OP(router_losses_backward, RouterLossesBackwardArgs);

namespace {

/// The experts of a vector of sums.
std::int64_t experts_of_sums(const TensorView& sums) { return (sums.n_elems() - 1) / 2; }

void check_loss_experts(dispatch::Check& check, std::int64_t experts) {
  check.require(experts > 0 && experts <= detail::kMostExperts, "there are ", experts,
                " experts; there may be 1 to ", detail::kMostExperts);
}
void check_sums(dispatch::Check& check, const TensorView& sums, std::int64_t rows) {
  check.require(sums.n_elems() % 2 == 1, "sums has ", sums.n_elems(), " elements; it must have 2 E + 1")
      .require(rows > 0, "there are ", rows, " rows of logits; there must be 1 or more");
  check_loss_experts(check, experts_of_sums(sums));
}

}  // namespace

std::size_t router_sums_workspace_bytes(std::int64_t tokens, std::int64_t experts) {
  return static_cast<std::size_t>(tokens) * sizeof(detail::TokenSoftmax) +
         detail::row_sums_bytes(tokens, detail::token_sums_of(experts));
}

void router_sums_host(const RouterSumsArgs& a, ThreadPool& pool) {
  const std::int64_t tokens = dispatch::row_count(a.logits), experts = dispatch::row_length(a.logits),
                     columns = detail::token_sums_of(experts);
  auto* const partials = reinterpret_cast<float*>(a.workspace.data + static_cast<std::size_t>(tokens) *
                                                                         sizeof(detail::TokenSoftmax));
  const detail::RowBlocks blocks = detail::row_blocks(tokens);
  pool.parallel_for(blocks.count, [&](std::int64_t block) {
    float* const sums = partials + block * columns;
    std::fill_n(sums, columns, 0.0f);
    const std::int64_t end = std::min(tokens, (block + 1) * blocks.rows);
    for (std::int64_t t = block * blocks.rows; t < end; ++t) {
      const float* const logits = a.logits.as<float>() + t * experts;
      const detail::TokenSoftmax softmax =
          detail::token_softmax(dispatch::EmulatedHalfWarp(), experts, logits);
      for (std::int64_t i = 0; i < columns; ++i)
        sums[i] = sums[i] + detail::token_term(softmax, logits, experts, i);
    }
  });
  for (std::int64_t i = 0; i < detail::router_sums_of(experts); ++i)
    a.sums.as<float>()[i] = detail::router_sum(i, experts, a.offsets.as<std::int32_t>(),
                                               detail::floats_or_null(a.before), partials, blocks.count);
}

void router_sums_backward_host(const RouterSumsBackwardArgs& a, ThreadPool& pool) {
  const std::int64_t experts = dispatch::row_length(a.logits);
  detail::dispatch_dtype(a.dlogits.dtype, [&]<class T>(std::type_identity<T>) {
    dispatch::parallel_for_ranges(pool, dispatch::row_count(a.logits), detail::rows_per_item(experts),
                                  [&](std::int64_t first, std::int64_t n) {
                                    for (std::int64_t t = first; t < first + n; ++t)
                                      detail::router_sums_token_backward(
                                          dispatch::EmulatedHalfWarp(), experts,
                                          a.logits.as<float>() + t * experts, a.dsums.as<float>(),
                                          a.dlogits.as<T>() + t * experts);
                                  });
  });
}

void router_losses_host(const RouterLossesArgs& a, ThreadPool&) {
  detail::router_losses_of(dispatch::EmulatedHalfWarp(), experts_of_sums(a.sums), a.rows, a.sums.as<float>(),
                           a.zero.as<float>(), a.losses.as<float>());
}

void router_losses_backward_host(const RouterLossesBackwardArgs& a, ThreadPool&) {
  const std::int64_t experts = experts_of_sums(a.sums);
  const float factor = dispatch::is_present(a.factor) ? a.factor.as<float>()[0] : 1.0f;
  for (std::int64_t i = 0; i < detail::router_sums_of(experts); ++i)
    a.dsums.as<float>()[i] =
        detail::router_losses_slope(i, experts, a.rows, a.sums.as<float>(), a.aux_coef, a.z_coef, factor);
}

Status router_sums_async(Backend& backend, Stream& stream, const RouterSumsArgs& a) {
  const std::int64_t tokens = dispatch::row_count(a.logits), experts = dispatch::row_length(a.logits),
                     sums = detail::router_sums_of(experts);
  dispatch::Check check("router_sums");
  check.rows("logits", a.logits, DType::f32, tokens, experts)
      .elements("offsets", a.offsets, DType::i32, experts + 1)
      .optional_elements("before", a.before, DType::f32, sums)
      .elements("sums", a.sums, DType::f32, sums)
      .workspace(a.workspace, router_sums_workspace_bytes(tokens, experts));
  check_loss_experts(check, experts);
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, router_sums_op, a, {a.logits, a.offsets, a.before}, {a.sums},
                           a.workspace);
}

Status router_sums_backward_async(Backend& backend, Stream& stream, const RouterSumsBackwardArgs& a) {
  const std::int64_t tokens = dispatch::row_count(a.logits), experts = dispatch::row_length(a.logits);
  dispatch::Check check("router_sums_backward", "dlogits", a.dlogits);
  check.rows("logits", a.logits, DType::f32, tokens, experts)
      .elements("dsums", a.dsums, DType::f32, detail::router_sums_of(experts))
      .rows("dlogits", a.dlogits, tokens, experts);
  check_loss_experts(check, experts);
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, router_sums_backward_op, a, {a.logits, a.dsums}, {a.dlogits});
}

Status router_losses_async(Backend& backend, Stream& stream, const RouterLossesArgs& a) {
  dispatch::Check check("router_losses");
  check.elements("sums", a.sums, DType::f32, a.sums.n_elems())
      .elements("zero", a.zero, DType::f32, 1)
      .elements("losses", a.losses, DType::f32, 2);
  check_sums(check, a.sums, a.rows);
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, router_losses_op, a, {a.sums}, {a.zero, a.losses});
}

Status router_losses_backward_async(Backend& backend, Stream& stream, const RouterLossesBackwardArgs& a) {
  dispatch::Check check("router_losses_backward");
  check.elements("sums", a.sums, DType::f32, a.sums.n_elems())
      .optional_elements("factor", a.factor, DType::f32, 1)
      .elements("dsums", a.dsums, DType::f32, a.sums.n_elems());
  check_sums(check, a.sums, a.rows);
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, router_losses_backward_op, a, {a.sums, a.factor}, {a.dsums});
}

}  // namespace strata::kernels
