#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <strata/model/dataset.h>
#include <strata/model/tokenizer.h>
#include <strata/runtime/io.h>

#include "chat_choice.h"
#include "train_config.h"

// How files become rows of tokens: what training, validation and evaluation share.
namespace strata::cli {

template <class T>
Result<T> annotated(Result<T> result, std::string_view doing) {
  return result.has_value() ? std::move(result) : Result<T>(result.status().annotate(doing));
}

/// What turns text into tokens.
struct TextCodec {
  Tokenizer tokenizer;
  ChatChoice chat;
};
/// Loads the tokenizer that the configuration names, else trains one on `files`. Errors: those of reading;
/// `invalid` for one with more tokens than model.vocab, naming both.
Result<TextCodec> open_codec(const TrainConfig& config, const std::vector<std::string>& files, Io& io);

/// Where the files of `key` are. Errors: `invalid` for none, `unsupported` for formats that are not read.
Result<std::vector<std::string>> locate_data_files(const std::vector<std::string>& paths,
                                                   std::string_view key);

/// The files as tokens: one packed file as it is, others through data.cache_dir, which is there. What was
/// read goes to `notes`. Errors: those of reading; `invalid` for bad records or an empty corpus.
Result<std::unique_ptr<TokenCache>> open_token_cache(const TrainConfig& config, const TextCodec& codec,
                                                     const std::vector<std::string>& files, Io& io,
                                                     std::vector<std::string>& notes);

/// Whether some of it is not learnt.
bool is_masked(const TokenCache& cache);
/// "stream" or "pack": what data.packing is, or where it is auto becomes for such data.
std::string resolve_packing(const TrainConfig& config, bool masked);

struct TokenDataset {
  std::unique_ptr<Dataset> data;
  std::uint64_t memory_bytes = 0;  ///< beside the cache
};
/// Rows of model.seq tokens. Errors: `invalid` for sequences longer than the data.
Result<TokenDataset> create_dataset(const TokenCache& cache, const TrainConfig& config,
                                    const std::string& packing, SampleOrder order, std::uint64_t seed);

}  // namespace strata::cli
