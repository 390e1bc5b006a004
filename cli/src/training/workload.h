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

/// Micro-batches of a dataset from the `first` on, each a function of its index alone.
class DatasetBatches final : public BatchSource {
 public:
  DatasetBatches(const Dataset& data, std::int64_t sequences, std::int64_t first = 0)
      : data_(data), sequences_(sequences), first_(first) {}
  Status fill(std::int64_t index, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) override {
    return data_.fill_batch(static_cast<std::uint64_t>((first_ + index) * sequences_), sequences_,
                            {tokens, targets});
  }

 private:
  const Dataset& data_;
  std::int64_t sequences_, first_;
};

/// What a run learns from: the tokenizer, the token files and their views.
class Workload {
 public:
  /// Trains or loads the tokenizer, and puts the data as tokens into the cache folder unless it is there.
  /// Errors: those of reading the files; `invalid` for bad records, an empty corpus, sequences longer than
  /// the data, or weights that cannot be kept.
  static Result<std::unique_ptr<Workload>> open(const TrainConfig& config, Io& io);

  const Tokenizer& tokenizer() const noexcept { return *tokenizer_; }
  const Dataset& train() const noexcept { return *train_; }
  const Dataset* val() const noexcept { return val_.get(); }
  /// "stream" or "pack": what data.packing is or, where it is auto, became.
  const std::string& packing() const noexcept { return packing_; }
  /// What was read to build token files, a sentence a .jsonl file, and what of the data is not used.
  const std::vector<std::string>& notes() const noexcept { return notes_; }
  /// Of the token files, and what packing holds beside them.
  std::uint64_t data_bytes() const noexcept;
  /// Of the tokens learnt from, in hex: equal digests, equal data.
  std::string data_digest() const;

 private:
  friend class WorkloadOpener;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<std::unique_ptr<TokenCache>> train_caches_;  // one, or with weights one a file
  std::unique_ptr<TokenCache> val_cache_;
  std::vector<std::unique_ptr<Dataset>> parts_;  // of a mixture
  std::unique_ptr<Dataset> train_, val_;
  std::string packing_;
  std::vector<std::string> notes_;
  std::uint64_t packed_bytes_ = 0;
};

DecoderConfig decoder_config(const TrainConfig& config);
/// Records the model for a micro-batch: training with its backward, validation, and inference of one
/// sequence.
Result<ProgramSet> record_programs(const TrainConfig& config, bool recompute);

}  // namespace strata::cli
