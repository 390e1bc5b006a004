#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>

#include <strata/engine/batch_source.h>
#include <strata/graph/passes.h>
#include <strata/text/dataset.h>
#include <strata/runtime/rng.h>

namespace strata {

/// Micro-batches, each of which depends only on its index.
class MicroBatches : public BatchSource {
 public:
  /// How many there are of data that is read once, in order. Other data has no end.
  virtual std::int64_t n_batches() const = 0;
  /// The targets that the loss of micro-batches [index, index + n) counts: tokens, or pairs.
  virtual TargetCount counted(std::int64_t index, std::int64_t n) const = 0;
  std::int64_t n_counted(std::int64_t index, std::int64_t n) override {
    return static_cast<std::int64_t>(counted(index, n).tokens);
  }
};

/// Writes the key [2] of each token of `sequences` sequences, the first of which is sample `first` of the run
/// (kernels/adapters/dropout.h): a function of the seed, of the sample's number, which counts on from epoch
/// to epoch, and of the position. `keys` may be empty.
inline void fill_dropout_keys(std::uint64_t seed, std::uint64_t first, std::int64_t sequences,
                              std::span<std::int32_t> keys) {
  constexpr std::uint32_t kStream = 0xD809;  // no other stream of the seed
  const std::size_t seq = keys.size() / 2 / static_cast<std::size_t>(sequences);
  for (std::size_t row = 0; row < keys.size() / 2; ++row) {
    const std::uint64_t sample = first + row / seq;
    const auto words = philox({static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(sample >> 32),
                               static_cast<std::uint32_t>(row % seq), kStream},
                              {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
    for (std::size_t i = 0; i < 2; ++i) keys[2 * row + i] = static_cast<std::int32_t>(words[i]);
  }
}

/// The micro-batches of a dataset. Rows of the last one for which there are no samples left are padding, so
/// that every sample counts.
class DatasetBatches final : public MicroBatches {
 public:
  /// `seed`: of the keys by which a training program drops values out.
  DatasetBatches(const Dataset& data, std::int64_t sequences, std::uint64_t seed = 0)
      : data_(data), sequences_(sequences), seed_(seed) {}
  Status fill(std::int64_t index, const BatchView& batch) override {
    fill_dropout_keys(seed_, sample(index), sequences_, batch[kDropoutKeys]);
    return data_.fill_padded_batch(sample(index), sequences_, there(sample(index), sequences_),
                                   {batch["tokens"], batch["targets"], batch["doc_start"]});
  }
  std::int64_t n_batches() const override {
    constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
    const auto n = static_cast<std::int64_t>(std::min(data_.n_samples(), kMost));
    return n / sequences_ + (n % sequences_ != 0 ? 1 : 0);
  }
  TargetCount counted(std::int64_t index, std::int64_t n) const override {
    return data_.count_targets(sample(index), there(sample(index), n * sequences_));
  }

 private:
  /// How many of `n` samples from `first` on exist.
  std::int64_t there(std::uint64_t first, std::int64_t n) const {
    const std::uint64_t left = data_.n_samples() - std::min(first, data_.n_samples());
    return static_cast<std::int64_t>(std::min(left, static_cast<std::uint64_t>(n)));
  }
  std::uint64_t sample(std::int64_t index) const { return static_cast<std::uint64_t>(index * sequences_); }
  const Dataset& data_;
  std::int64_t sequences_;
  std::uint64_t seed_;
};

}  // namespace strata
