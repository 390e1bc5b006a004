#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <strata/text/token_cache.h>
#include <strata/runtime/status.h>

namespace strata {

/// A target that the loss ignores.
inline constexpr std::int32_t kIgnoreIndex = -1;

/// Output buffers of n samples, row by row [n, seq], i32. doc_start and positions may be empty if they are
/// not needed.
struct Batch {
  std::span<std::int32_t> inputs;
  std::span<std::int32_t> targets;         ///< the next token, or kIgnoreIndex
  std::span<std::int32_t> doc_start = {};  ///< position in the row where a token's document begins; token t
                                           ///< attends to doc_start[t] ... t
  std::span<std::int32_t> positions = {};  ///< t - doc_start[t]
};

/// The denominators of a mean loss.
struct TargetCount {
  std::uint64_t tokens = 0;  ///< targets that the loss counts
  std::uint64_t bytes = 0;   ///< bytes of source text of these targets
};

/// Samples of `seq` tokens. Sample k depends only on the dataset's parameters and on k, so a resumed run
/// needs k and no other state. Immutable; any thread may call. The objects it was created from must outlive
/// it.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t seq() const noexcept = 0;
  /// Number of samples: finite for sequential order, unlimited for shuffled.
  virtual std::uint64_t n_samples() const noexcept = 0;
  /// Samples of one pass over the data, in any order; of a mixture, as many as its sources have together.
  virtual std::uint64_t n_epoch_samples() const noexcept = 0;
  /// Whether a row may hold several documents that attention must keep apart, that is whether doc_start may
  /// be nonzero.
  virtual bool separates_documents() const noexcept = 0;
  /// Tokens are below it.
  virtual std::int32_t vocab_size() const noexcept = 0;

  /// Fills samples k0 ... k0 + n - 1. Does not allocate if it succeeds.
  /// Errors: `invalid` unless all spans have n x seq elements (the optional ones may be empty) and the
  /// samples exist; `corrupt` for a token that is not in the vocabulary: a mapped file may be overwritten at
  /// any time, and tokens are indexes of tables.
  Status fill_batch(std::uint64_t k0, std::int64_t n, const Batch& batch) const;
  /// The same where samples from k0 + `there` on do not exist: their rows are padding, which has no target
  /// and to which no token of another row attends.
  Status fill_padded_batch(std::uint64_t k0, std::int64_t n, std::int64_t there, const Batch& batch) const;
  /// Counts the targets of these samples, which must exist. Bits per byte = total loss in nats / ln 2 /
  /// bytes.
  TargetCount count_targets(std::uint64_t k0, std::int64_t n) const noexcept;

 protected:
  Dataset() = default;
  Dataset(const Dataset&) = default;
  Dataset& operator=(const Dataset&) = default;
  /// Writes an existing sample to a row of the right size.
  virtual void fill_row(std::uint64_t k, const Batch& row) const noexcept = 0;
  virtual TargetCount count_row(std::uint64_t k) const noexcept = 0;
  /// Makes positions `first` and later of a row padding. A padding token attends only to itself.
  static void pad_row(const Batch& row, std::size_t first) noexcept;
  // For datasets that consist of other datasets.
  static void fill_row_of(const Dataset& data, std::uint64_t k, const Batch& row) noexcept {
    data.fill_row(k, row);
  }
  static TargetCount count_row_of(const Dataset& data, std::uint64_t k) noexcept { return data.count_row(k); }
};

enum class SampleOrder : std::uint8_t {
  sequential,  ///< sample k is window k, one epoch only; for validation
  shuffled,    ///< a new permutation of the windows in every epoch, endless; for training
};

struct StreamOptions {
  std::int64_t seq = 0;  ///< tokens of one sample
  SampleOrder order = SampleOrder::sequential;
  std::uint64_t seed = 0;
  /// The part of the cache that is used, in tokens; `end` is clamped to the number of tokens.
  std::uint64_t begin = 0;
  std::uint64_t end = std::numeric_limits<std::uint64_t>::max();
};

/// Contiguous windows over a cache, across document borders. Window w is tokens [w seq, w seq + seq] of the
/// used part: the first `seq` are the inputs and the last `seq` the targets, so neighboring windows share one
/// token and each target occurs once in an epoch. Attention sees the whole row. A view: the cache must
/// outlive it.
class StreamDataset final : public Dataset {
 public:
  /// Errors: `invalid` for seq < 1 or fewer than seq + 1 tokens, with both numbers.
  static Result<StreamDataset> create(const TokenCache& cache, StreamOptions options);

  std::int64_t seq() const noexcept override { return options_.seq; }
  std::uint64_t n_samples() const noexcept override;
  bool separates_documents() const noexcept override { return false; }
  std::int32_t vocab_size() const noexcept override { return cache_->vocab_size(); }
  std::uint64_t n_epoch_samples() const noexcept override { return n_windows_; }
  /// Windows in one epoch.
  std::uint64_t n_windows() const noexcept { return n_windows_; }
  /// The window that is sample k, k < n_samples().
  std::uint64_t window_of(std::uint64_t k) const noexcept;

 private:
  StreamDataset(const TokenCache& cache, StreamOptions options, std::uint64_t n_windows) noexcept
      : cache_(&cache), options_(options), n_windows_(n_windows) {}
  void fill_row(std::uint64_t k, const Batch& row) const noexcept override;
  TargetCount count_row(std::uint64_t k) const noexcept override;

  const TokenCache* cache_;
  StreamOptions options_;
  std::uint64_t n_windows_;
};

struct PackOptions {
  std::int64_t seq = 0;  ///< tokens of one sample
  SampleOrder order = SampleOrder::sequential;
  std::uint64_t seed = 0;  ///< for the order, and for which documents share a row
};

struct PackingStats {
  std::uint64_t n_rows = 0;           ///< in one epoch
  std::uint64_t n_packed_tokens = 0;  ///< positions of these rows that are not padding
  std::uint64_t n_spans = 0;          ///< documents, or parts of documents longer than a row
  std::uint64_t n_split = 0;          ///< documents longer than a row
  std::uint64_t n_dropped = 0;        ///< spans without loss tokens, which are in no row
};

/// Packs whole documents into rows, as many as fit; a document longer than a row is split into several rows.
/// A token attends only to its own document, and no target belongs to another one. The spans of a row never
/// change; in shuffled order every epoch has its own order of rows. Each loss token is a target once per
/// epoch, except the first token of a document, which has no predecessor. Padding at the end of a row is no
/// target. A view: the cache must outlive it. Copies share the packed rows.
class PackedDataset final : public Dataset {
 public:
  /// Errors: `invalid` for a seq out of range or a cache without loss tokens; `out_of_memory`.
  static Result<PackedDataset> create(const TokenCache& cache, PackOptions options);

  std::int64_t seq() const noexcept override { return options_.seq; }
  std::uint64_t n_samples() const noexcept override;
  bool separates_documents() const noexcept override { return true; }
  std::int32_t vocab_size() const noexcept override { return cache_->vocab_size(); }
  std::uint64_t n_epoch_samples() const noexcept override { return stats().n_rows; }
  const PackingStats& stats() const noexcept;
  /// Memory it uses in addition to the cache.
  std::uint64_t memory_bytes() const noexcept;
  /// The row that is sample k, k < n_samples().
  std::uint64_t row_of(std::uint64_t k) const noexcept;

 private:
  struct Rows;
  PackedDataset(const TokenCache& cache, PackOptions options, std::shared_ptr<const Rows> rows) noexcept
      : cache_(&cache), options_(options), rows_(std::move(rows)) {}
  void fill_row(std::uint64_t k, const Batch& row) const noexcept override;
  TargetCount count_row(std::uint64_t k) const noexcept override;

  const TokenCache* cache_;
  PackOptions options_;
  std::shared_ptr<const Rows> rows_;
};

struct MixedSource {
  std::string name;
  const Dataset* data = nullptr;  ///< in shuffled order; outlives the mixture
  double weight = 1;
};

/// Samples of several datasets in fixed proportions. Among the first k samples, for any k, the number from a
/// source differs from its exact share by less than one. The source of sample k depends only on (weights,
/// seed, k), and the sample is that source's next one, so each source runs through its own epochs. Copies
/// share the order.
class MixedDataset final : public Dataset {
 public:
  /// Errors: `invalid` for sources with different seq or with finite samples, and for weights that are not
  /// positive, have more than 6 decimals, or whose ratio in integers has a period longer than 2^20.
  static Result<MixedDataset> create(std::vector<MixedSource> sources, std::uint64_t seed);

  std::int64_t seq() const noexcept override { return sources_.front().data->seq(); }
  std::uint64_t n_samples() const noexcept override { return std::numeric_limits<std::uint64_t>::max(); }
  bool separates_documents() const noexcept override;
  std::int32_t vocab_size() const noexcept override { return sources_.front().data->vocab_size(); }
  std::uint64_t n_epoch_samples() const noexcept override {
    std::uint64_t n = 0;
    for (const MixedSource& source : sources_) n += source.data->n_epoch_samples();
    return n;
  }
  struct Pick {
    std::size_t source;
    std::uint64_t index;  ///< sample of that source
  };
  Pick pick(std::uint64_t k) const noexcept;

 private:
  struct Order;
  MixedDataset(std::vector<MixedSource> sources, std::shared_ptr<const Order> order) noexcept
      : sources_(std::move(sources)), order_(std::move(order)) {}
  void fill_row(std::uint64_t k, const Batch& row) const noexcept override;
  TargetCount count_row(std::uint64_t k) const noexcept override;

  std::vector<MixedSource> sources_;
  std::shared_ptr<const Order> order_;
};

namespace detail {
/// Errors: `corrupt` for a token of a batch that is not in the vocabulary.
Status check_tokens(std::span<const std::int32_t> inputs, std::span<const std::int32_t> targets,
                    std::int32_t vocab_size);
}  // namespace detail

}  // namespace strata
