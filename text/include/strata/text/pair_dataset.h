#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <strata/text/dataset.h>
#include <strata/text/token_cache.h>
#include <strata/runtime/status.h>

namespace strata {

struct PairOptions {
  std::int64_t seq = 0;        ///< tokens of a row
  std::int64_t rows = 1;       ///< rows of a micro-batch
  std::int64_t max_pairs = 1;  ///< pairs of a micro-batch
  /// The tokens that a document's segment covers: its last token, not counting the end of text, or the tokens
  /// before those of its answer, whose targets these are.
  enum class Segments : std::uint8_t { last_token, answers } segments = Segments::answers;
  std::int32_t end_of_text = -1;  ///< the tokenizer's end of text; -1: it has none
  SampleOrder order = SampleOrder::sequential;
  std::uint64_t seed = 0;  ///< for the order, and for which pairs share a micro-batch
};

/// The inputs of a micro-batch: rows x seq values of i32, and max_pairs weights, 1 for each pair and then 0.
/// Targets and weights may be empty if they are not needed.
struct PairBatch {
  std::span<std::int32_t> inputs;
  std::span<std::int32_t> targets;    ///< tokens of answers; the rest is kIgnoreIndex
  std::span<std::int32_t> doc_start;  ///< as in Batch
  /// For the micro-batch's pair i, 2 i for its chosen document and 2 i + 1 for the other; -1 elsewhere.
  std::span<std::int32_t> segments;
  std::span<float> weights;
};

struct PairStats {
  std::uint64_t n_pairs = 0;          ///< pairs in an epoch
  std::uint64_t n_batches = 0;        ///< micro-batches in an epoch
  std::uint64_t n_packed_tokens = 0;  ///< positions of these that are not padding
  std::uint64_t n_cut = 0;            ///< pairs of which tokens are left out, since a row is too short
  std::uint64_t n_dropped = 0;        ///< pairs with a document that has no token in the loss
};

/// Packs pairs of documents, the first of them preferred to the second, into micro-batches: both documents of
/// a pair are in one, each whole in a row. Of a document longer than a row tokens before its first one in the
/// loss are left out, as many in both documents of the pair, and then tokens at its end. Micro-batch k
/// depends on k and the options alone; in shuffled order every epoch has its own order of micro-batches. A
/// view: the cache, whose documents 2 i and 2 i + 1 are a pair, must outlive it.
class PairDataset {
 public:
  /// Errors: `invalid` for sizes below 1, rows of one token, or a cache without a pair to compare;
  /// `out_of_memory`.
  static Result<PairDataset> create(const TokenCache& cache, PairOptions options);

  const PairStats& stats() const noexcept;
  std::uint64_t memory_bytes() const noexcept;  ///< in addition to the cache
  const PairOptions& options() const noexcept { return options_; }
  /// Pairs of the cache, with those that are in no micro-batch.
  std::uint64_t n_pairs_of_cache() const noexcept { return cache_->n_documents() / 2; }
  /// Fills micro-batch `k`; in sequential order k < n_batches. Does not allocate. Errors: `invalid` for spans
  /// of other sizes.
  Status fill(std::uint64_t k, const PairBatch& batch) const;
  /// The pairs of micro-batch `k`, each as its number in the cache.
  std::span<const std::uint32_t> pairs_of(std::uint64_t k) const noexcept;

 private:
  struct Packed;
  PairDataset(const TokenCache& cache, PairOptions options, std::shared_ptr<const Packed> packed) noexcept
      : cache_(&cache), options_(options), packed_(std::move(packed)) {}
  std::uint64_t batch_of(std::uint64_t k) const noexcept;

  const TokenCache* cache_;
  PairOptions options_;
  std::shared_ptr<const Packed> packed_;
};

}  // namespace strata
