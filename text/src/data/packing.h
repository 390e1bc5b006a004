#pragma once

#include <cstdint>
#include <vector>

#include <strata/text/dataset.h>

namespace strata::detail {

/// The part of a document in one row: the inputs are tokens [begin, begin + length), the targets are shifted
/// by one. A document of n tokens takes n - 1 positions, since its last token is only a target.
struct DocumentSpan {
  std::uint64_t begin = 0;
  std::uint32_t length = 0;
};

/// Which spans share a row: row r has spans row_first[r] ... row_first[r + 1] - 1.
struct Packing {
  std::vector<DocumentSpan> spans;
  std::vector<std::uint64_t> row_first = {0};
  PackingStats stats;
};

/// Packs the documents, in sequential order or in an order given by the seed, into rows. A document longer
/// than a row is split. Within each window of kPackingWindow spans the longest come first, and each goes into
/// the row with the least room that fits (best fit). Rows are ordered by their first spans, so that any part
/// of them is not biased by length. Linear in the number of tokens, n log n in a window.
Packing pack_documents(const TokenCache& cache, const PackOptions& options);

inline constexpr std::size_t kPackingWindow = std::size_t{1} << 16;

}  // namespace strata::detail
