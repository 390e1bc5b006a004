#include <strata/text/dataset.h>

#include <algorithm>
#include <numeric>

#include <strata/runtime/str.h>

#include <strata/text/permutation.h>
#include "data/target_count.h"

namespace strata {

Result<StreamDataset> StreamDataset::create(const TokenCache& cache, StreamOptions options) {
  options.end = std::min(options.end, cache.n_tokens());
  const std::uint64_t n = options.end - std::min(options.begin, options.end);
  if (options.seq < 1)
    return Status::error(Code::invalid,
                         str("sequences of ", options.seq, " tokens; the length must be at least 1"));
  const auto seq = static_cast<std::uint64_t>(options.seq);
  if (n == 0 || (n - 1) / seq == 0)
    return Status::error(
        Code::invalid, str("sequences of ", seq, " tokens need ", seq, " + 1 tokens, but the data has ", n));
  return StreamDataset(cache, options, (n - 1) / seq);
}

std::uint64_t StreamDataset::n_samples() const noexcept {
  return options_.order == SampleOrder::sequential ? n_windows_ : std::numeric_limits<std::uint64_t>::max();
}

std::uint64_t StreamDataset::window_of(std::uint64_t k) const noexcept {
  if (options_.order == SampleOrder::sequential) return k;
  return permuted(k % n_windows_, n_windows_, options_.seed, k / n_windows_);
}

void StreamDataset::fill_row(std::uint64_t k, const Batch& row) const noexcept {
  const std::size_t seq = row.inputs.size();
  const std::uint64_t first = options_.begin + window_of(k) * seq;
  for (std::size_t t = 0; t < seq; ++t) {
    row.inputs[t] = cache_->token(first + t);
    const std::uint64_t next = first + t + 1;
    row.targets[t] = cache_->loss_mask(next) ? cache_->token(next) : kIgnoreIndex;
  }
  std::fill(row.doc_start.begin(), row.doc_start.end(), 0);
  std::iota(row.positions.begin(), row.positions.end(), 0);
}

TargetCount StreamDataset::count_row(std::uint64_t k) const noexcept {
  const auto seq = static_cast<std::uint64_t>(options_.seq);
  const std::uint64_t first = options_.begin + window_of(k) * seq;
  return detail::count_loss_tokens(*cache_, first + 1, first + seq + 1);
}

}  // namespace strata
