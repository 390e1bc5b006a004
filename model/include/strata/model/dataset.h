#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include <strata/model/token_cache.h>
#include <strata/runtime/status.h>

namespace strata {

/// A target that the loss does not count.
inline constexpr std::int32_t kNotCounted = -1;

/// Where n samples are written, row by row [n, seq], i32. The last two are left out by who does not need
/// them.
struct Batch {
  std::span<std::int32_t> inputs;
  std::span<std::int32_t> targets;         ///< the token that follows, or kNotCounted
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
};

enum class SampleOrder : std::uint8_t {
  in_order,  ///< window k is sample k, once: for validation
  shuffled,  ///< every epoch a new permutation of the windows, without end: for training
};

struct StreamOptions {
  std::int64_t seq = 0;  ///< tokens of one sample
  SampleOrder order = SampleOrder::in_order;
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

}  // namespace strata
