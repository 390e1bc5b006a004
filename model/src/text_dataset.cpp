#include <strata/model/dataset.h>

#include <algorithm>

#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

#include "permutation.h"

namespace strata {

Result<TextDataset> TextDataset::create(const TokenCache& cache, TextDatasetOptions options) {
  options.end = std::min(options.end, cache.n_tokens());
  const std::uint64_t n = options.end - std::min(options.begin, options.end);
  if (options.seq < 1)
    return Status::error(Code::invalid, str("sequences of ", options.seq, " tokens, at least 1"));
  const auto seq = static_cast<std::uint64_t>(options.seq);
  if (n == 0 || (n - 1) / seq == 0)
    return Status::error(Code::invalid,
                         str("sequences of ", seq, " tokens need ", seq, " + 1, the data has ", n));
  return TextDataset(cache, options, (n - 1) / seq);
}

std::uint64_t TextDataset::n_samples() const noexcept {
  return options_.order == SampleOrder::in_order ? n_windows_ : std::numeric_limits<std::uint64_t>::max();
}

std::uint64_t TextDataset::window_of(std::uint64_t k) const noexcept {
  if (options_.order == SampleOrder::in_order) return k;
  return detail::permuted(k % n_windows_, n_windows_, options_.seed, k / n_windows_);
}

Status TextDataset::fill_batch(std::uint64_t k0, std::int64_t n, std::span<std::int32_t> inputs,
                               std::span<std::int32_t> targets) const {
  const auto seq = static_cast<std::uint64_t>(options_.seq);
  std::uint64_t elems = 0;
  if (n < 0 || __builtin_mul_overflow(static_cast<std::uint64_t>(n), seq, &elems) || inputs.size() != elems ||
      targets.size() != elems)
    return Status::error(Code::invalid, str("a batch of ", n, " x ", seq, " tokens into spans of ",
                                            inputs.size(), " and ", targets.size()));
  if (k0 > n_samples() || static_cast<std::uint64_t>(n) > n_samples() - k0)
    return Status::error(Code::invalid, str("samples ", k0, " and ", n, " on, there are ", n_samples()));
  for (std::uint64_t row = 0; row < static_cast<std::uint64_t>(n); ++row) {
    const std::uint64_t first = options_.begin + window_of(k0 + row) * seq;
    for (std::uint64_t i = 0; i < seq; ++i) {
      inputs[row * seq + i] = cache_->token(first + i);
      targets[row * seq + i] = cache_->token(first + i + 1);
    }
  }
  return {};
}

std::uint64_t TextDataset::target_bytes(std::uint64_t k0, std::int64_t n) const noexcept {
  const auto seq = static_cast<std::uint64_t>(options_.seq);
  STRATA_ASSERT(n >= 0 && k0 <= n_samples() && static_cast<std::uint64_t>(n) <= n_samples() - k0, "samples ",
                k0, " and ", n, " on, there are ", n_samples());
  std::uint64_t bytes = 0;
  for (std::uint64_t k = k0; k < k0 + static_cast<std::uint64_t>(n); ++k) {
    const std::uint64_t first = options_.begin + window_of(k) * seq;
    bytes += cache_->source_bytes(first + 1, first + seq + 1);
  }
  return bytes;
}

}  // namespace strata
