#include <strata/kernels/cross_entropy.h>

#include <strata/dispatch/op.h>
#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>

#include "dtype_dispatch.h"
#include "loss/cross_entropy_rows.h"
#include "work_split.h"

namespace strata::kernels {
namespace {

template <class T>
void forward(const CrossEntropyForwardArgs& a, ThreadPool& pool) {
  const std::int64_t vocab = dispatch::row_length(a.logits);
  const std::int64_t rows = dispatch::row_count(a.logits);
  const auto* targets = a.targets.as<std::int32_t>();
  auto* losses = a.losses.as<float>();
  auto* lse = a.lse.as<float>();
  dispatch::parallel_for_ranges(
      pool, rows, detail::rows_per_item(vocab), [&](std::int64_t first, std::int64_t n) {
        for (std::int64_t t = first; t < first + n; ++t)
          losses[t] = detail::row_loss(a.logits.as<T>() + t * vocab, vocab, targets[t], lse[t]);
      });
  *a.mean_loss.as<float>() = detail::mean_loss(losses, rows, detail::loss_divisor(a.divisor, targets, rows));
}

template <class T>
void backward(const CrossEntropyBackwardArgs& a, ThreadPool& pool) {
  const std::int64_t vocab = dispatch::row_length(a.logits);
  const std::int64_t rows = dispatch::row_count(a.logits);
  const auto* targets = a.targets.as<std::int32_t>();
  const double divisor = a.mean_reduction ? detail::loss_divisor(a.divisor, targets, rows) : 1.0;
  const float scale = static_cast<float>(static_cast<double>(a.scale) / (divisor > 0 ? divisor : 1.0));
  dispatch::parallel_for_ranges(
      pool, rows, detail::rows_per_item(vocab), [&](std::int64_t first, std::int64_t n) {
        for (std::int64_t t = first; t < first + n; ++t)
          detail::row_gradient(a.logits.as<T>() + t * vocab, vocab, targets[t], a.lse.as<float>()[t], scale,
                               a.dlogits.as<T>() + t * vocab);
      });
}

}  // namespace

STRATA_OP(cross_entropy_forward, CrossEntropyForwardArgs);
STRATA_OP(cross_entropy_backward, CrossEntropyBackwardArgs);

float log_probability(std::span<const float> logits, std::int32_t target) noexcept {
  float lse = 0;
  return 0.0f - detail::row_loss(logits.data(), std::ssize(logits), target, lse);
}

void cross_entropy_forward_host(const CrossEntropyForwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.logits.dtype, [&]<class T>(std::type_identity<T>) { forward<T>(a, pool); });
}

void cross_entropy_backward_host(const CrossEntropyBackwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.logits.dtype, [&]<class T>(std::type_identity<T>) { backward<T>(a, pool); });
}

Status cross_entropy_forward_async(Backend& backend, Stream& stream, const CrossEntropyForwardArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.logits);
  const std::int64_t vocab = dispatch::row_length(a.logits);
  STRATA_TRY(dispatch::Check("cross_entropy_forward", "logits", a.logits)
                 .rows("logits", a.logits, rows, vocab)
                 .elements("targets", a.targets, DType::i32, rows)
                 .elements("losses", a.losses, DType::f32, rows)
                 .elements("lse", a.lse, DType::f32, rows)
                 .elements("mean_loss", a.mean_loss, DType::f32, 1)
                 .require(vocab >= 1, "logits have rows of 0 elements")
                 .optional_elements("divisor", a.divisor, DType::f32, 1)
                 .status());
  return dispatch::enqueue(backend, stream, cross_entropy_forward_op, a, {a.logits, a.targets, a.divisor},
                           {a.losses, a.lse, a.mean_loss});
}

Status cross_entropy_backward_async(Backend& backend, Stream& stream, const CrossEntropyBackwardArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.logits);
  const std::int64_t vocab = dispatch::row_length(a.logits);
  STRATA_TRY(dispatch::Check("cross_entropy_backward", "logits", a.logits)
                 .rows("logits", a.logits, rows, vocab)
                 .elements("targets", a.targets, DType::i32, rows)
                 .elements("lse", a.lse, DType::f32, rows)
                 .rows("dlogits", a.dlogits, rows, vocab)
                 .require(vocab >= 1, "logits have rows of 0 elements")
                 .optional_elements("divisor", a.divisor, DType::f32, 1)
                 .status());
  return dispatch::enqueue(backend, stream, cross_entropy_backward_op, a,
                           {a.logits, a.targets, a.lse, a.divisor}, {a.dlogits});
}

}  // namespace strata::kernels
