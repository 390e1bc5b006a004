#pragma once

#include <memory>
#include <string>
#include <vector>

#include <strata/engine/engine.h>
#include <strata/graph/passes.h>
#include <strata/model/dataset.h>
#include <strata/model/decoder.h>
#include <strata/model/tokenizer.h>
#include <strata/runtime/io.h>

#include "train_config.h"
#include "training/activation_choices.h"
#include "training/token_data.h"

namespace strata::cli {

/// Micro-batches of a dataset, each a function of its index alone.
class DatasetBatches final : public BatchSource {
 public:
  DatasetBatches(const Dataset& data, std::int64_t sequences) : data_(data), sequences_(sequences) {}
  Status fill(std::int64_t index, const BatchView& batch) override {
    return data_.fill_batch(sample(index), sequences_, {batch.tokens, batch.targets, batch.doc_start});
  }
  std::int64_t n_counted(std::int64_t index, std::int64_t n) override {
    return static_cast<std::int64_t>(data_.count_targets(sample(index), n * sequences_).tokens);
  }

 private:
  std::uint64_t sample(std::int64_t index) const { return static_cast<std::uint64_t>(index * sequences_); }
  const Dataset& data_;
  std::int64_t sequences_;
};

/// What a run learns from: the tokenizer, the token files and their views.
class TrainingData {
 public:
  /// Trains or loads the tokenizer, and puts the data as tokens into the cache folder unless it is there.
  /// Errors: those of reading the files; `invalid` for bad records, an empty corpus, sequences longer than
  /// the data, or weights that cannot be kept.
  static Result<std::unique_ptr<TrainingData>> open(const TrainConfig& config, Io& io);

  const Tokenizer& tokenizer() const noexcept { return codec_->tokenizer; }
  const Dataset& train() const noexcept { return *train_; }
  const Dataset* val() const noexcept { return val_.get(); }
  /// Whether some of what is learnt from is written by a chat template.
  bool has_conversations() const noexcept { return has_conversations_; }
  /// "stream" or "pack": what data.packing is or, where it is auto, became.
  const std::string& packing() const noexcept { return packing_; }
  /// What was read to build token files, a sentence a .jsonl file, and what of the data is not used.
  const std::vector<std::string>& notes() const noexcept { return notes_; }
  /// Of the token files, and what packing holds beside them.
  std::uint64_t data_bytes() const noexcept;
  /// Of the tokens learnt from, in hex: equal digests, equal data. Taken once, when they are opened.
  const std::string& data_digest() const noexcept { return data_digest_; }

 private:
  friend class TrainingDataBuilder;
  std::string digest_data() const;
  std::unique_ptr<TextCodec> codec_;
  std::vector<std::unique_ptr<TokenCache>> train_caches_;  // one, or with weights one a file
  std::unique_ptr<TokenCache> val_cache_;
  std::vector<std::unique_ptr<Dataset>> parts_;  // of a mixture
  std::unique_ptr<Dataset> train_, val_;
  std::string packing_, data_digest_;
  std::vector<std::string> notes_;
  std::uint64_t packed_bytes_ = 0;
  bool has_conversations_ = false;
};

DecoderConfig decoder_config(const TrainConfig& config);
/// What train.dtype, once decided, means.
DType compute_dtype(const TrainConfig& config);
/// The program as it is run: products in eight bits where train.fp8 asks for them, additions joined to norms,
/// and where memory.backend is a GPU, attention by what train.attention_backend says, and scratch for
/// products.
Program specialize_for_backend(Program program, const TrainConfig& config);
/// Records the model's loss of a micro-batch; not yet fitted.
Result<Program> record_evaluation(const TrainConfig& config);
/// Records the model for a micro-batch, fitted: training with its backward, validation, and inference of one
/// sequence.
Result<ProgramSet> record_programs(const TrainConfig& config, const ActivationChoice& activations);

}  // namespace strata::cli
