#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <strata/text/dataset.h>
#include <strata/text/token_cache.h>
#include <strata/text/tokenizer.h>
#include <strata/runtime/status.h>

namespace strata {

/// Statistics of a token cache, and of its datasets with rows of `seq` tokens.
struct DataSummary {
  std::int64_t seq = 0;
  std::uint64_t n_documents = 0, n_tokens = 0, n_loss_tokens = 0;
  std::uint64_t shortest = 0, longest = 0;  ///< document, in tokens
  /// The number of documents of `from` to `to` tokens, both inclusive; bins are powers of two.
  struct Bin {
    std::uint64_t from, to, n;
  };
  std::vector<Bin> lengths;  ///< from the shortest to the longest document, empty bins included
  std::uint64_t stream_rows = 0;
  PackingStats packing;
  /// Fraction of the positions of packed rows that are not padding.
  double packing_efficiency() const noexcept;
};
/// Errors: `invalid` for seq < 1.
Result<DataSummary> summarize(const TokenCache& cache, std::int64_t seq);

/// A sample as readable text.
struct DecodedSample {
  struct Run {
    bool loss_mask;
    std::string text;  ///< the tokens' bytes
  };
  struct Document {
    std::int64_t first, last;  ///< positions in the row, both inclusive
    std::vector<Run> runs;     ///< text of its inputs and of its last target
  };
  std::vector<Document> documents;
  std::int64_t padding = 0;  ///< number of padding positions
};
/// Decodes sample `k` of `data`. Errors: `invalid` if there is no such sample, or for an id that the
/// tokenizer does not have.
Result<DecodedSample> decode_sample(const Dataset& data, const Tokenizer& tokenizer, std::uint64_t k);

}  // namespace strata
