#include <algorithm>
#include <span>

#include <strata/cpuopt/norm.h>
#include <strata/kernels/cross_entropy.h>
#include <strata/runtime/assert.h>

#include "op.h"
#include "row_table.h"

namespace strata::kernels {
namespace {

std::int64_t counted(const std::int32_t* targets, std::int64_t rows) {
  return std::count_if(targets, targets + rows, [](std::int32_t target) { return target >= 0; });
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
  const std::int64_t n = counted(targets, rows);
  const double sum = cpuopt::tree_sum(std::span<const float>(losses, static_cast<std::size_t>(rows)));
  *a.mean_loss.as<float>() = n > 0 ? static_cast<float>(sum / static_cast<double>(n)) : 0.0f;
}

void cross_entropy_backward_host(const CrossEntropyBackwardArgs& a, ThreadPool& pool) {
  const std::int64_t vocab = detail::row_length(a.logits);
  const std::int64_t rows = detail::row_count(a.logits);
  const auto* targets = a.targets.as<std::int32_t>();
  const std::int64_t n_counted = a.divide_by_counted ? counted(targets, rows) : 1;
  const float scale = static_cast<float>(static_cast<double>(a.scale) /
                                         static_cast<double>(std::max<std::int64_t>(n_counted, 1)));
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
