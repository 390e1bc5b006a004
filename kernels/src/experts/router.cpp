#include <strata/kernels/experts/router.h>

#include <strata/dispatch/cuda/emulation/half_warp.h>
#include <strata/dispatch/op.h>
#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>

#include "dtype_dispatch.h"
#include "experts/router_math.h"
#include "work_split.h"

namespace strata::kernels {
STRATA_OP(router_top_k, RouterTopKArgs);
STRATA_OP(router_top_k_backward, RouterTopKBackwardArgs);

namespace {

detail::RouterShape shape_of(const RouterRule& rule, const TensorView& logits, const TensorView& experts) {
  return {rule, dispatch::row_length(logits), dispatch::row_length(experts)};
}

void check_rule(dispatch::Check& check, const RouterRule& rule, std::int64_t experts, std::int64_t chosen) {
  check.require(experts > 0 && experts <= detail::kMostExperts, "logits have ", experts,
                " experts; there may be 1 to ", detail::kMostExperts);
  check.require(chosen > 0 && chosen <= experts, "experts has ", chosen, " choices of ", experts, " experts");
  check.require(rule.groups > 0 && experts % rule.groups == 0, experts, " experts are not a multiple of ",
                rule.groups, " groups");
  check.require(rule.top_groups > 0 && rule.top_groups <= rule.groups, "top_groups is ", rule.top_groups,
                " of ", rule.groups, " groups");
  if (!check.status().is_ok() || rule.top_groups == rule.groups) return;
  const std::int64_t length = experts / rule.groups;
  check.require(length >= 2, "a group has ", length, " expert; it needs 2 to be chosen by its two best");
  check.require(chosen <= rule.top_groups * length, "experts has ", chosen, " choices; ", rule.top_groups,
                " groups have ", rule.top_groups * length, " experts");
}

/// Memory of a thread for any token.
struct TokenMemory {
  float scores[detail::kMostExperts], groups[detail::kMostExperts];
  detail::RouterSpace space() { return {scores, groups}; }
};

}  // namespace

void router_top_k_host(const RouterTopKArgs& a, ThreadPool& pool) {
  const detail::RouterShape shape = shape_of(a.rule, a.logits, a.experts);
  const float* const bias = dispatch::is_present(a.bias) ? a.bias.as<float>() : nullptr;
  dispatch::parallel_for_ranges(pool, dispatch::row_count(a.logits), detail::rows_per_item(shape.experts),
                                [&](std::int64_t first, std::int64_t n) {
                                  TokenMemory memory;
                                  for (std::int64_t t = first; t < first + n; ++t)
                                    detail::route_token(dispatch::EmulatedHalfWarp(), shape, memory.space(),
                                                        a.logits.as<float>() + t * shape.experts, bias,
                                                        a.experts.as<std::int32_t>() + t * shape.chosen,
                                                        a.weights.as<float>() + t * shape.chosen);
                                });
}

void router_top_k_backward_host(const RouterTopKBackwardArgs& a, ThreadPool& pool) {
  const detail::RouterShape shape = shape_of(a.rule, a.logits, a.experts);
  detail::dispatch_dtype(a.dlogits.dtype, [&]<class T>(std::type_identity<T>) {
    dispatch::parallel_for_ranges(
        pool, dispatch::row_count(a.logits), detail::rows_per_item(shape.experts),
        [&](std::int64_t first, std::int64_t n) {
          TokenMemory memory;
          for (std::int64_t t = first; t < first + n; ++t)
            detail::route_token_backward(
                dispatch::EmulatedHalfWarp(), shape, memory.space(), a.logits.as<float>() + t * shape.experts,
                a.experts.as<std::int32_t>() + t * shape.chosen, a.dweights.as<float>() + t * shape.chosen,
                a.dlogits.as<T>() + t * shape.experts);
        });
  });
}

Status router_top_k_async(Backend& backend, Stream& stream, const RouterTopKArgs& a) {
  const std::int64_t tokens = dispatch::row_count(a.logits), experts = dispatch::row_length(a.logits),
                     chosen = dispatch::row_length(a.experts);
  dispatch::Check check("router_top_k");
  check.rows("logits", a.logits, DType::f32, tokens, experts)
      .optional_elements("bias", a.bias, DType::f32, experts)
      .rows("experts", a.experts, DType::i32, tokens, chosen)
      .rows("weights", a.weights, DType::f32, tokens, chosen);
  check_rule(check, a.rule, experts, chosen);
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, router_top_k_op, a, {a.logits, a.bias}, {a.experts, a.weights});
}

Status router_top_k_backward_async(Backend& backend, Stream& stream, const RouterTopKBackwardArgs& a) {
  const std::int64_t tokens = dispatch::row_count(a.logits), experts = dispatch::row_length(a.logits),
                     chosen = dispatch::row_length(a.experts);
  dispatch::Check check("router_top_k_backward", "dlogits", a.dlogits);
  check.rows("logits", a.logits, DType::f32, tokens, experts)
      .rows("experts", a.experts, DType::i32, tokens, chosen)
      .rows("dweights", a.dweights, DType::f32, tokens, chosen)
      .rows("dlogits", a.dlogits, tokens, experts);
  check_rule(check, a.rule, experts, chosen);
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, router_top_k_backward_op, a, {a.logits, a.experts, a.dweights},
                           {a.dlogits});
}

}  // namespace strata::kernels
