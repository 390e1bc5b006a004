#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <strata/text/dataset.h>
#include <strata/text/tokenizer.h>
#include <strata/runtime/io/io.h>
#include <strata/batches/micro_batches.h>
#include <strata/batches/token_data.h>

namespace strata {

struct TrainConfig;

class PairBatches;
class PromptSet;

/// How much there is to learn from.
struct DataSize {
  std::uint64_t n_documents = 0, n_tokens = 0;
  std::uint64_t longest = 0;     ///< tokens of the longest document
  std::uint64_t n_split = 0;     ///< documents that are longer than model.seq, if they are packed
  std::uint64_t epoch_rows = 0;  ///< sequences of one pass; micro-batches, if there are pairs; 0 for prompts
};

/// The data of a run: the tokenizer, the token files and the datasets that read them.
class TrainingData {
 public:
  /// Trains or loads the tokenizer, and tokenizes the data into the cache folder unless it is already there.
  /// Errors: those of reading the files; `invalid` for bad records, an empty corpus, sequences longer than
  /// the data, or weights that cannot be satisfied.
  static Result<std::unique_ptr<TrainingData>> open(const TrainConfig& config, Io& io);
  ~TrainingData();

  const Tokenizer& tokenizer() const noexcept { return codec_->tokenizer; }
  /// Micro-batches of `sequences` rows, train.micro_batch, which a plan may have halved since open(); those
  /// of pairs are as they were packed. The data outlives them. Of validation: null if there is no such data.
  std::unique_ptr<MicroBatches> train_batches(std::int64_t sequences) const;
  std::unique_ptr<MicroBatches> val_batches(std::int64_t sequences) const;
  /// The batches of data.mixture; null if there is none.
  std::unique_ptr<MicroBatches> mixture_batches(std::int64_t sequences) const;
  /// The pairs of a run that compares pairs, which train_batches() and val_batches() copy; else null.
  PairBatches* train_pairs() const noexcept { return train_pairs_.get(); }
  PairBatches* val_pairs() const noexcept { return val_pairs_.get(); }
  /// The prompts of a run that samples answers, which has no batches before it does; else null.
  const PromptSet* prompts() const noexcept { return prompts_.get(); }
  /// Whether some of the data was written with a chat template.
  bool has_conversations() const noexcept { return has_conversations_; }
  /// "stream" or "pack": data.packing, resolved if it is `auto`.
  const std::string& packing() const noexcept { return packing_; }
  /// One sentence per .jsonl file that was read to build token files, and notes on data that is not used.
  const std::vector<std::string>& notes() const noexcept { return notes_; }
  /// The prompt that a sample of the model continues: of the first document of data.val, or of data.train if
  /// there is no other, the tokens before the first that the loss counts, or its first words if it counts
  /// all. Not of a run that samples answers.
  std::vector<std::int32_t> first_prompt() const;
  /// Tokens of a row: model.seq, or what the data need of it if it is the most.
  std::int64_t seq() const noexcept { return seq_; }
  /// Returns how much data.train has; if it has prompts, only their number.
  const DataSize& size() const noexcept { return size_; }
  /// Bytes of the mapped token files and of the packing tables.
  std::uint64_t data_bytes() const noexcept;
  /// Digest of the training tokens in hex: equal digests mean equal data. Computed once, in open().
  const std::string& data_digest() const noexcept { return data_digest_; }
  /// Digest of the pairs of data.val, to which the reference's stored values are bound; empty if there are
  /// none.
  const std::string& val_digest() const noexcept { return val_digest_; }

 private:
  friend class TrainingDataBuilder;
  using Caches = std::vector<std::unique_ptr<TokenCache>>;
  std::unique_ptr<TextCodec> codec_;
  Caches train_caches_;                          // one; with weights, one per file
  Caches val_caches_;                            // at most one
  std::vector<std::unique_ptr<Dataset>> parts_;  // the parts of a mixture
  std::unique_ptr<Dataset> train_, val_, mixture_;
  std::unique_ptr<PairBatches> train_pairs_, val_pairs_;
  std::unique_ptr<const PromptSet> prompts_;
  std::string packing_, data_digest_, val_digest_;
  std::vector<std::string> notes_;
  std::uint64_t packed_bytes_ = 0;
  DataSize size_;
  std::int64_t seq_ = 0;
  std::uint64_t seed_ = 0;
  bool has_conversations_ = false;
};

}  // namespace strata
