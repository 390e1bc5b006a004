#include <algorithm>
#include <span>

#include <strata/cpuopt/norm.h>
#include <strata/kernels/cross_entropy.h>
#include <strata/runtime/assert.h>

#include "op.h"
#include "row_table.h"

namespace strata::kernels {
namespace {

double divisor_of(const TensorView& given, const std::int32_t* targets, std::int64_t rows) {
  if (detail::is_given(given)) return static_cast<double>(*given.as<float>());
  return static_cast<double>(
      std::count_if(targets, targets + rows, [](std::int32_t target) { return target >= 0; }));
}

}  // namespace

void cross_entropy_forward_host(const CrossEntropyForwardArgs& a, ThreadPool& pool) {
  const std::int64_t vocab = detail::row_length(a.logits);
  const std::int64_t rows = detail::row_count(a.logits);
  const auto* targets = a.targets.as<std::int32_t>();
  auto* losses = a.losses.as<float>();
  auto* lse = a.lse.as<float>();
  const detail::RowTable& table = detail::row_table();
  detail::for_runs(pool, rows, detail::rows_per_item(vocab), [&](std::int64_t first, std::int64_t n) {
    for (std::int64_t t = first; t < first + n; ++t) {
      STRATA_DCHECK(targets[t] < vocab, "target ", t, " is ", targets[t], " of ", vocab);
      const float* row = a.logits.as<float>() + t * vocab;
      lse[t] = table.log_sum_exp(row, vocab);
      losses[t] = targets[t] >= 0 ? lse[t] - row[targets[t]] : 0.0f;
    }
  });
  const double divisor = divisor_of(a.divisor, targets, rows);
  const double sum = cpuopt::tree_sum(std::span<const float>(losses, static_cast<std::size_t>(rows)));
  *a.mean_loss.as<float>() = divisor > 0 ? static_cast<float>(sum / divisor) : 0.0f;
}

void cross_entropy_backward_host(const CrossEntropyBackwardArgs& a, ThreadPool& pool) {
  const std::int64_t vocab = detail::row_length(a.logits);
  const std::int64_t rows = detail::row_count(a.logits);
  const auto* targets = a.targets.as<std::int32_t>();
  const double divisor = a.divide_by_counted ? divisor_of(a.divisor, targets, rows) : 1.0;
  const float scale = static_cast<float>(static_cast<double>(a.scale) / (divisor > 0 ? divisor : 1.0));
  const detail::RowTable& table = detail::row_table();
  detail::for_runs(pool, rows, detail::rows_per_item(vocab), [&](std::int64_t first, std::int64_t n) {
    for (std::int64_t t = first; t < first + n; ++t) {
      STRATA_DCHECK(targets[t] < vocab, "target ", t, " is ", targets[t], " of ", vocab);
      float* out = a.dlogits.as<float>() + t * vocab;
      if (targets[t] < 0) {
        std::fill_n(out, vocab, 0.0f);
        continue;
      }
      table.softmax_from_lse(a.logits.as<float>() + t * vocab, out, a.lse.as<float>()[t], scale, vocab);
      out[targets[t]] -= scale;
    }
  });
}

}  // namespace strata::kernels
