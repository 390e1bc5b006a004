#include <algorithm>
#include <span>

#include <strata/cpuopt/math/elementary.h>
#include <strata/cpuopt/norm.h>
#include <strata/kernels/cross_entropy.h>
#include <strata/runtime/assert.h>

#include "op.h"
#include "stored_table.h"

namespace strata::kernels {
namespace {

double divisor_of(const TensorView& given, const std::int32_t* targets, std::int64_t rows) {
  if (detail::is_given(given)) return static_cast<double>(*given.as<float>());
  return static_cast<double>(
      std::count_if(targets, targets + rows, [](std::int32_t target) { return target >= 0; }));
}

template <class T>
void forward(const CrossEntropyForwardArgs& a, ThreadPool& pool) {
  const std::int64_t vocab = detail::row_length(a.logits);
  const std::int64_t rows = detail::row_count(a.logits);
  const auto* targets = a.targets.as<std::int32_t>();
  auto* losses = a.losses.as<float>();
  auto* lse = a.lse.as<float>();
  const detail::StoredTable<T>& table = detail::row_table<T>();
  detail::for_runs(pool, rows, detail::rows_per_item(vocab), [&](std::int64_t first, std::int64_t n) {
    for (std::int64_t t = first; t < first + n; ++t) {
      STRATA_DCHECK(targets[t] < vocab, "target ", t, " is ", targets[t], " of ", vocab);
      const T* row = a.logits.as<T>() + t * vocab;
      lse[t] = table.log_sum_exp(row, vocab);
      losses[t] = targets[t] >= 0 ? lse[t] - to_f32(row[targets[t]]) : 0.0f;
    }
  });
  const double divisor = divisor_of(a.divisor, targets, rows);
  const double sum = cpuopt::tree_sum(std::span<const float>(losses, static_cast<std::size_t>(rows)));
  *a.mean_loss.as<float>() = divisor > 0 ? static_cast<float>(sum / divisor) : 0.0f;
}

template <class T>
void backward(const CrossEntropyBackwardArgs& a, ThreadPool& pool) {
  const std::int64_t vocab = detail::row_length(a.logits);
  const std::int64_t rows = detail::row_count(a.logits);
  const auto* targets = a.targets.as<std::int32_t>();
  const double divisor = a.divide_by_counted ? divisor_of(a.divisor, targets, rows) : 1.0;
  const float scale = static_cast<float>(static_cast<double>(a.scale) / (divisor > 0 ? divisor : 1.0));
  const detail::StoredTable<T>& table = detail::row_table<T>();
  detail::for_runs(pool, rows, detail::rows_per_item(vocab), [&](std::int64_t first, std::int64_t n) {
    for (std::int64_t t = first; t < first + n; ++t) {
      STRATA_DCHECK(targets[t] < vocab, "target ", t, " is ", targets[t], " of ", vocab);
      const T* row = a.logits.as<T>() + t * vocab;
      T* out = a.dlogits.as<T>() + t * vocab;
      if (targets[t] < 0) {
        std::fill_n(out, vocab, from_f32<T>(0.0f));
        continue;
      }
      const float lse = a.lse.as<float>()[t];
      // The target's entry by itself, so that it too is rounded once; dlogits may be the logits.
      const float target = cpuopt::exp_of(to_f32(row[targets[t]]) - lse) * scale - scale;
      table.softmax_from_lse(row, out, lse, scale, vocab);
      out[targets[t]] = from_f32<T>(target);
    }
  });
}

}  // namespace

void cross_entropy_forward_host(const CrossEntropyForwardArgs& a, ThreadPool& pool) {
  detail::with_storage(a.logits.dtype, [&]<class T>(std::type_identity<T>) { forward<T>(a, pool); });
}

void cross_entropy_backward_host(const CrossEntropyBackwardArgs& a, ThreadPool& pool) {
  detail::with_storage(a.logits.dtype, [&]<class T>(std::type_identity<T>) { backward<T>(a, pool); });
}

}  // namespace strata::kernels
