#include <strata/kernels/cross_entropy.h>
#include <strata/ops/ranges.h>
#include <strata/ops/rows.h>

#include "dtype_dispatch.h"
#include "loss/cross_entropy_rows.h"
#include "work_split.h"

namespace strata::kernels {
namespace {

template <class T>
void forward(const CrossEntropyForwardArgs& a, ThreadPool& pool) {
  const std::int64_t vocab = ops::row_length(a.logits);
  const std::int64_t rows = ops::row_count(a.logits);
  const auto* targets = a.targets.as<std::int32_t>();
  auto* losses = a.losses.as<float>();
  auto* lse = a.lse.as<float>();
  ops::parallel_for_ranges(pool, rows, detail::rows_per_item(vocab), [&](std::int64_t first, std::int64_t n) {
    for (std::int64_t t = first; t < first + n; ++t)
      losses[t] = detail::row_loss(a.logits.as<T>() + t * vocab, vocab, targets[t], lse[t]);
  });
  *a.mean_loss.as<float>() = detail::mean_loss(losses, rows, detail::loss_divisor(a.divisor, targets, rows));
}

template <class T>
void backward(const CrossEntropyBackwardArgs& a, ThreadPool& pool) {
  const std::int64_t vocab = ops::row_length(a.logits);
  const std::int64_t rows = ops::row_count(a.logits);
  const auto* targets = a.targets.as<std::int32_t>();
  const double divisor = a.mean_reduction ? detail::loss_divisor(a.divisor, targets, rows) : 1.0;
  const float scale = static_cast<float>(static_cast<double>(a.scale) / (divisor > 0 ? divisor : 1.0));
  ops::parallel_for_ranges(pool, rows, detail::rows_per_item(vocab), [&](std::int64_t first, std::int64_t n) {
    for (std::int64_t t = first; t < first + n; ++t)
      detail::row_gradient(a.logits.as<T>() + t * vocab, vocab, targets[t], a.lse.as<float>()[t], scale,
                           a.dlogits.as<T>() + t * vocab);
  });
}

}  // namespace

void cross_entropy_forward_host(const CrossEntropyForwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.logits.dtype, [&]<class T>(std::type_identity<T>) { forward<T>(a, pool); });
}

void cross_entropy_backward_host(const CrossEntropyBackwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.logits.dtype, [&]<class T>(std::type_identity<T>) { backward<T>(a, pool); });
}

}  // namespace strata::kernels
