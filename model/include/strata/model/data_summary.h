#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <strata/model/dataset.h>
#include <strata/model/token_cache.h>
#include <strata/model/tokenizer.h>
#include <strata/runtime/status.h>

namespace strata {

/// What a cache holds, and what rows of `seq` tokens would make of it.
struct DataSummary {
  std::int64_t seq = 0;
  std::uint64_t n_documents = 0, n_tokens = 0, n_loss_tokens = 0;
  std::uint64_t shortest = 0, longest = 0;  ///< document, in tokens
  /// Documents of `from` to `to` tokens, both included; powers of two.
  struct Bin {
    std::uint64_t from, to, n;
  };
  std::vector<Bin> lengths;  ///< from the shortest to the longest, those between without a document too
  std::uint64_t stream_rows = 0;
  PackingStats packing;
  /// Of the places of packed rows, those that are not padding.
  double packing_efficiency() const noexcept;
};
/// Errors: `invalid` for seq < 1.
Result<DataSummary> summarize(const TokenCache& cache, std::int64_t seq);

/// A sample as a person can read it.
struct DecodedSample {
  struct Run {
    bool loss_mask;
    std::string text;  ///< the tokens' bytes
  };
  struct Document {
    std::int64_t first, last;  ///< places in the row, both included
    std::vector<Run> runs;     ///< what its inputs and last target say
  };
  std::vector<Document> documents;
  std::int64_t padding = 0;  ///< places
};
/// Sample `k` of `data`. Errors: `invalid` where there is none, or an id that is not the tokenizer's.
Result<DecodedSample> decode_sample(const Dataset& data, const Tokenizer& tokenizer, std::uint64_t k);

}  // namespace strata
