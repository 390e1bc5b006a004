#pragma once

#include <memory>
#include <string>
#include <vector>

#include <strata/engine/engine.h>
#include <strata/model/dataset.h>
#include <strata/model/decoder.h>
#include <strata/model/tokenizer.h>
#include <strata/runtime/io.h>

#include "train_config.h"

namespace strata::cli {

/// Micro-batches of a dataset, each a function of its index alone.
class DatasetBatches final : public BatchSource {
 public:
  DatasetBatches(const Dataset& data, std::int64_t sequences) : data_(data), sequences_(sequences) {}
  Status fill(std::int64_t index, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) override {
    return data_.fill_batch(static_cast<std::uint64_t>(index * sequences_), sequences_, {tokens, targets});
  }

 private:
  const Dataset& data_;
  std::int64_t sequences_;
};

/// What a run learns from: the tokenizer, the packed corpora and their views.
class Workload {
 public:
  /// Trains or loads the tokenizer, and packs the corpora into the cache folder unless they are there.
  /// Errors: those of reading the files; `invalid` for an empty corpus or sequences longer than the data.
  static Result<std::unique_ptr<Workload>> open(const TrainConfig& config, Io& io);

  const Tokenizer& tokenizer() const noexcept { return *tokenizer_; }
  const Dataset& train() const noexcept { return *train_; }
  const Dataset* val() const noexcept { return val_.get(); }
  std::uint64_t mapped_bytes() const noexcept;  ///< of the token files
  /// Of the tokens learnt from, in hex: equal digests, equal data.
  std::string data_digest() const;

 private:
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<TokenCache> train_cache_, val_cache_;
  std::unique_ptr<Dataset> train_, val_;
};

DecoderConfig decoder_config(const TrainConfig& config);
/// Records the model for a micro-batch: training with its backward, validation, and inference of one
/// sequence.
Result<ProgramSet> record_programs(const TrainConfig& config, bool recompute);

}  // namespace strata::cli
