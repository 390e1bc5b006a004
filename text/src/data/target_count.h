#pragma once

#include <strata/text/dataset.h>

namespace strata::detail {

/// Counts the loss tokens in [begin, end).
inline TargetCount count_loss_tokens(const TokenCache& cache, std::uint64_t begin,
                                     std::uint64_t end) noexcept {
  TargetCount count;
  for (std::uint64_t i = begin; i < end; ++i) {
    if (!cache.loss_mask(i)) continue;
    ++count.tokens;
    count.bytes += cache.source_bytes(i, i + 1);
  }
  return count;
}

}  // namespace strata::detail
