#pragma once

#include <cstdint>
#include <vector>

#include <strata/model/dataset.h>

namespace strata::detail {

/// Part of a document that stands in one row: the inputs are tokens [begin, begin + length), the targets
/// those one further on. A document of n tokens has n - 1 places: its last token is a target alone.
struct DocumentSpan {
  std::uint64_t begin = 0;
  std::uint32_t length = 0;
};

/// Which pieces share a row: those of row r are row_first[r] ... row_first[r + 1] - 1 of `spans`.
struct Packing {
  std::vector<DocumentSpan> spans;
  std::vector<std::uint64_t> row_first = {0};
  PackingStats stats;
};

/// Documents in order, or in one that `seed` gives, cut where they are longer than a row and placed in rows:
/// of each run of kPackingWindow pieces the longest first, each into the row that it fills best. Rows stand
/// in the order of their first pieces, so that a part of them is no choice by length. Linear in the tokens,
/// and n log n in a window.
Packing pack_documents(const TokenCache& cache, const PackOptions& options);

inline constexpr std::size_t kPackingWindow = std::size_t{1} << 16;

}  // namespace strata::detail
