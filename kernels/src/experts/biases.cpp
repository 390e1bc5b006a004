#include <strata/kernels/experts/biases.h>

#include <algorithm>

#include <strata/dispatch/cuda/emulation/half_warp.h>
#include <strata/dispatch/op.h>
#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>
#include <strata/runtime/threads/thread_pool.h>

#include "dtype_dispatch.h"
#include "experts/bias_math.h"
#include "partial_sums.h"
#include "work_split.h"

namespace strata::kernels {
STRATA_OP(router_bias, RouterBiasArgs);
STRATA_OP(expert_bias_forward, ExpertBiasForwardArgs);
STRATA_OP(expert_bias_backward, ExpertBiasBackwardArgs);
STRATA_OP(expert_bias_backward_weights, ExpertBiasBackwardWeightsArgs);

namespace {

template <class T>
void add_router_bias(const RouterBiasArgs& a, ThreadPool& pool) {
  const std::int64_t n = dispatch::row_length(a.logits);
  dispatch::parallel_for_ranges(pool, dispatch::row_count(a.logits), detail::rows_per_item(n),
                                [&](std::int64_t first, std::int64_t rows) {
                                  for (std::int64_t i = first * n; i < (first + rows) * n; ++i)
                                    a.sums.as<float>()[i] =
                                        a.logits.as<float>()[i] + to_f32(a.bias.as<T>()[i % n]);
                                });
}

template <class T>
void add_expert_biases(const ExpertBiasForwardArgs& a, ThreadPool& pool) {
  const std::int64_t h = dispatch::row_length(a.y), k = dispatch::row_length(a.weights),
                     n_experts = a.bias.shape.dims[0];
  dispatch::parallel_for_ranges(
      pool, dispatch::row_count(a.y), detail::rows_per_item(h * k), [&](std::int64_t first, std::int64_t n) {
        for (std::int64_t t = first; t < first + n; ++t)
          for (std::int64_t c = 0; c < h; ++c)
            a.y.as<T>()[t * h + c] = from_f32<T>(
                detail::expert_bias_of_token(a.bias.as<T>(), a.weights.as<float>() + t * k,
                                             a.experts.as<std::int32_t>() + t * k, k, n_experts, h, c));
      });
}

// The sums of a run of columns, row by row: the same additions as expert_bias_gradient(), along rows of dy.
constexpr std::int64_t kGradientColumns = 256;
template <class T>
void sum_bias_gradients(const ExpertBiasBackwardArgs& a, std::int64_t e, std::int64_t first) {
  const std::int64_t h = dispatch::row_length(a.dy), k = dispatch::row_length(a.weights),
                     n = std::min(kGradientColumns, h - first);
  const auto *const offsets = a.offsets.as<std::int32_t>(), *const source = a.source.as<std::int32_t>();
  float total[kGradientColumns] = {}, sum[kGradientColumns];
  for (std::int64_t panel = offsets[e]; panel < offsets[e + 1]; panel += detail::kBiasPanel) {
    std::fill_n(sum, n, 0.0f);
    for (std::int64_t r = panel; r < std::min<std::int64_t>(panel + detail::kBiasPanel, offsets[e + 1]);
         ++r) {
      const float weight = a.weights.as<float>()[source[r]];
      const T* const row = a.dy.as<T>() + source[r] / k * h + first;
      for (std::int64_t c = 0; c < n; ++c) sum[c] = sum[c] + weight * to_f32(row[c]);
    }
    for (std::int64_t c = 0; c < n; ++c) total[c] = total[c] + sum[c];
  }
  detail::store_sum(a.dbias, e * h + first, total, n, a.accumulate);
}

template <class T>
void find_weight_gradients(const ExpertBiasBackwardWeightsArgs& a, ThreadPool& pool) {
  const std::int64_t h = dispatch::row_length(a.dy), k = dispatch::row_length(a.experts),
                     n_experts = a.bias.shape.dims[0];
  dispatch::parallel_for_ranges(
      pool, a.experts.n_elems(), detail::rows_per_item(h), [&](std::int64_t first, std::int64_t n) {
        for (std::int64_t c = first; c < first + n; ++c) {
          const std::int64_t e = detail::bounded_expert(a.experts.as<std::int32_t>()[c], n_experts);
          a.dweights.as<float>()[c] = detail::expert_bias_weight_gradient(
              dispatch::EmulatedHalfWarp(), a.dy.as<T>() + c / k * h, a.bias.as<T>() + e * h, h);
        }
      });
}

/// Requires choices [T, k] of as many tokens as the rows of `of`, and a bias [E, H].
void check_biases(dispatch::Check& check, const TensorView& of, const TensorView& bias,
                  const TensorView& choices) {
  const std::int64_t tokens = dispatch::row_count(of), h = dispatch::row_length(of);
  check
      .require(bias.shape.rank == 2 && bias.shape.dims[1] == h, "bias has rows of ",
               dispatch::row_length(bias), "; it must have rows of ", h)
      .require(choices.shape.rank == 2 && choices.shape.dims[0] == tokens, "choices of ",
               dispatch::row_count(choices), " tokens; there must be ", tokens);
}

}  // namespace

void router_bias_host(const RouterBiasArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.bias.dtype, [&]<class T>(std::type_identity<T>) { add_router_bias<T>(a, pool); });
}
void expert_bias_forward_host(const ExpertBiasForwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.y.dtype, [&]<class T>(std::type_identity<T>) { add_expert_biases<T>(a, pool); });
}
void expert_bias_backward_host(const ExpertBiasBackwardArgs& a, ThreadPool& pool) {
  const std::int64_t across = dispatch::ceil_div(dispatch::row_length(a.dy), kGradientColumns);
  detail::dispatch_dtype(a.dy.dtype, [&]<class T>(std::type_identity<T>) {
    pool.parallel_for((a.offsets.n_elems() - 1) * across, [&](std::int64_t item) {
      sum_bias_gradients<T>(a, item / across, item % across * kGradientColumns);
    });
  });
}
void expert_bias_backward_weights_host(const ExpertBiasBackwardWeightsArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.dy.dtype,
                         [&]<class T>(std::type_identity<T>) { find_weight_gradients<T>(a, pool); });
}

Status router_bias_async(Backend& backend, Stream& stream, const RouterBiasArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.logits), n = dispatch::row_length(a.logits);
  STRATA_TRY(dispatch::Check("router_bias", "bias", a.bias)
                 .rows("logits", a.logits, DType::f32, rows, n)
                 .elements("bias", a.bias, a.bias.dtype, n)
                 .rows("sums", a.sums, DType::f32, rows, n)
                 .status());
  return dispatch::enqueue(backend, stream, router_bias_op, a, {a.logits, a.bias}, {a.sums});
}
Status expert_bias_forward_async(Backend& backend, Stream& stream, const ExpertBiasForwardArgs& a) {
  const std::int64_t choices = a.experts.n_elems();
  dispatch::Check check("expert_bias_forward", "bias", a.bias);
  check_biases(check, a.y, a.bias, a.weights);
  check.rows("y", a.y, a.bias.dtype, dispatch::row_count(a.y), dispatch::row_length(a.y))
      .elements("experts", a.experts, DType::i32, choices)
      .elements("weights", a.weights, DType::f32, choices);
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, expert_bias_forward_op, a, {a.bias, a.weights, a.experts}, {a.y});
}
Status expert_bias_backward_async(Backend& backend, Stream& stream, const ExpertBiasBackwardArgs& a) {
  dispatch::Check check("expert_bias_backward", "dy", a.dy);
  check_biases(check, a.dy, a.dbias, a.weights);
  check.elements("weights", a.weights, DType::f32, a.weights.n_elems())
      .elements("offsets", a.offsets, DType::i32, dispatch::row_count(a.dbias) + 1)
      .elements("source", a.source, DType::i32, a.weights.n_elems())
      .elements("dbias", a.dbias, a.dbias.dtype == DType::f32 ? DType::f32 : a.dy.dtype, a.dbias.n_elems())
      .require(!a.accumulate || a.dbias.dtype == DType::f32, "dbias is ", to_string(a.dbias.dtype),
               "; what is accumulated into must be f32");
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, expert_bias_backward_op, a,
                           {a.dy, a.weights, a.offsets, a.source}, {a.dbias});
}
Status expert_bias_backward_weights_async(Backend& backend, Stream& stream,
                                          const ExpertBiasBackwardWeightsArgs& a) {
  const std::int64_t choices = a.experts.n_elems();
  dispatch::Check check("expert_bias_backward_weights", "dy", a.dy);
  check_biases(check, a.dy, a.bias, a.experts);
  check.elements("bias", a.bias, a.dy.dtype, a.bias.n_elems())
      .elements("experts", a.experts, DType::i32, choices)
      .elements("dweights", a.dweights, DType::f32, choices);
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, expert_bias_backward_weights_op, a, {a.dy, a.bias, a.experts},
                           {a.dweights});
}

}  // namespace strata::kernels
