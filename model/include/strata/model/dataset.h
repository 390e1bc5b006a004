#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <strata/model/token_cache.h>
#include <strata/runtime/status.h>

namespace strata {

/// A target that the loss does not count.
inline constexpr std::int32_t kIgnoreIndex = -1;

/// Where n samples are written, row by row [n, seq], i32. The last two are left out by who does not need
/// them.
struct Batch {
  std::span<std::int32_t> inputs;
  std::span<std::int32_t> targets;         ///< the token that follows, or kIgnoreIndex
  std::span<std::int32_t> doc_start = {};  ///< where in its row a token's document begins; attention of t
                                           ///< sees doc_start[t] ... t
  std::span<std::int32_t> positions = {};  ///< t - doc_start[t]
};

/// What a loss is a mean over.
struct TargetCount {
  std::uint64_t tokens = 0;  ///< targets that are counted
  std::uint64_t bytes = 0;   ///< of source text that they stand for
};

/// Samples of `seq` tokens. Which sample k is depends on how the dataset was made and on k alone: a resumed
/// run needs k and no other state. Immutable; any thread may call. What it was made from must outlive it.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t seq() const noexcept = 0;
  /// Samples there are: a count in order, without limit shuffled.
  virtual std::uint64_t n_samples() const noexcept = 0;
  /// Whether a row may hold several documents that attention must keep apart: whether doc_start is ever
  /// anything but 0.
  virtual bool separates_documents() const noexcept = 0;

  /// Fills samples k0 ... k0 + n - 1. Allocates nothing when it succeeds.
  /// Errors: `invalid` unless all spans have n x seq elements (the optional ones may be empty) and the
  /// samples exist.
  Status fill_batch(std::uint64_t k0, std::int64_t n, const Batch& batch) const;
  /// Of those samples, which must exist. Bits per byte = total loss in nats / ln 2 / bytes.
  TargetCount count_targets(std::uint64_t k0, std::int64_t n) const noexcept;

 protected:
  Dataset() = default;
  Dataset(const Dataset&) = default;
  Dataset& operator=(const Dataset&) = default;
  /// One sample that exists into one row of the right size.
  virtual void fill_row(std::uint64_t k, const Batch& row) const noexcept = 0;
  virtual TargetCount count_row(std::uint64_t k) const noexcept = 0;
  // For datasets made of others.
  static void fill_row_of(const Dataset& data, std::uint64_t k, const Batch& row) noexcept {
    data.fill_row(k, row);
  }
  static TargetCount count_row_of(const Dataset& data, std::uint64_t k) noexcept { return data.count_row(k); }
};

enum class SampleOrder : std::uint8_t {
  sequential,  ///< window k is sample k, once: for validation
  shuffled,    ///< every epoch a new permutation of the windows, without end: for training
};

struct StreamOptions {
  std::int64_t seq = 0;  ///< tokens of one sample
  SampleOrder order = SampleOrder::sequential;
  std::uint64_t seed = 0;
  /// The part of the cache that is used, in tokens; the end is cut to what there is.
  std::uint64_t begin = 0;
  std::uint64_t end = std::numeric_limits<std::uint64_t>::max();
};

/// Continuous windows over a cache, documents running on: window w is tokens [w seq, w seq + seq] of the used
/// part, the first `seq` the inputs and the last `seq` the targets, so windows share one token and no target
/// is seen twice in an epoch. Attention sees the whole row. A view: the cache must outlive it.
class StreamDataset final : public Dataset {
 public:
  /// Errors: `invalid` for seq < 1 or fewer than seq + 1 tokens, naming both numbers.
  static Result<StreamDataset> create(const TokenCache& cache, StreamOptions options);

  std::int64_t seq() const noexcept override { return options_.seq; }
  std::uint64_t n_samples() const noexcept override;
  bool separates_documents() const noexcept override { return false; }
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
  std::uint64_t seed = 0;  ///< of the order, and of which documents share a row
};

struct PackingStats {
  std::uint64_t n_rows = 0;           ///< of one epoch
  std::uint64_t n_packed_tokens = 0;  ///< in them that are not padding
  std::uint64_t n_spans = 0;          ///< documents, or parts of those that are longer than a row
  std::uint64_t n_split = 0;          ///< documents longer than a row
  std::uint64_t n_dropped = 0;        ///< parts in which nothing is learnt, and so in no row
};

/// Whole documents, as many to a row as fit; one that is longer is cut at rows. A token sees its document
/// alone and no target is of another. The pieces in a row never change; shuffled, every epoch has its own
/// order of the rows. Each target that is learnt is there once an epoch, but for a document's first token,
/// which nothing comes before. Padding at the end of a row is no target. A view: the cache must outlive it.
/// Copies share what was packed.
class PackedDataset final : public Dataset {
 public:
  /// Errors: `invalid` for a seq out of range or where nothing is to be learnt; `out_of_memory`.
  static Result<PackedDataset> create(const TokenCache& cache, PackOptions options);

  std::int64_t seq() const noexcept override { return options_.seq; }
  std::uint64_t n_samples() const noexcept override;
  bool separates_documents() const noexcept override { return true; }
  const PackingStats& stats() const noexcept;
  /// What it holds beside the cache.
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
  const Dataset* data = nullptr;  ///< shuffled, outlives the mixture
  double weight = 1;
};

/// Samples of several datasets in fixed shares. Of any first k samples a source has less than one more or
/// less than its share; which source sample k is from depends on (weights, seed, k) alone, and it is that
/// source's next, so that each goes through its own epochs. Copies share the order.
class MixedDataset final : public Dataset {
 public:
  /// Errors: `invalid` for sources of different seq or with an end, and for weights that are not above 0,
  /// have more than 6 decimals, or whose whole-number ratio is longer than 2^20.
  static Result<MixedDataset> create(std::vector<MixedSource> sources, std::uint64_t seed);

  std::int64_t seq() const noexcept override { return sources_.front().data->seq(); }
  std::uint64_t n_samples() const noexcept override { return std::numeric_limits<std::uint64_t>::max(); }
  bool separates_documents() const noexcept override;
  struct Pick {
    std::size_t source;
    std::uint64_t index;  ///< the source's sample
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

}  // namespace strata
