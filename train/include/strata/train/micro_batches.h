#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include <strata/engine/batch_source.h>
#include <strata/model/dataset.h>

namespace strata {

/// Micro-batches, each of which depends only on its index.
class MicroBatches : public BatchSource {
 public:
  /// How many there are of data that is read once, in order. Other data has no end.
  virtual std::int64_t n_batches() const = 0;
  /// What the loss of micro-batches [index, index + n) counts: tokens, or pairs.
  virtual TargetCount counted(std::int64_t index, std::int64_t n) const = 0;
  std::int64_t n_counted(std::int64_t index, std::int64_t n) override {
    return static_cast<std::int64_t>(counted(index, n).tokens);
  }
};

/// The micro-batches of a dataset. Rows of the last one for which there are no samples left are padding, so
/// that every sample counts.
class DatasetBatches final : public MicroBatches {
 public:
  DatasetBatches(const Dataset& data, std::int64_t sequences) : data_(data), sequences_(sequences) {}
  Status fill(std::int64_t index, const BatchView& batch) override {
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
};

}  // namespace strata
