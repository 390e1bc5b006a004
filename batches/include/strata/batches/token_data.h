#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/text/dataset.h>
#include <strata/text/tokenizer.h>
#include <strata/runtime/io/io.h>
#include <strata/config/chat_choice.h>

// Turns files into rows of tokens; used by training, validation and evaluation.
namespace strata {

struct TrainConfig;

template <class T>
Result<T> annotated(Result<T> result, std::string_view doing) {
  return result.has_value() ? std::move(result) : Result<T>(result.status().annotate(doing));
}

/// Turns text and conversations into tokens.
struct TextCodec {
  Tokenizer tokenizer;
  ChatChoice chat;
};
/// Loads the tokenizer that the configuration names, or trains one on `files` if it names none. Errors: those
/// of reading; `invalid` if the tokenizer has more tokens than model.vocab beside added ones, with both
/// numbers.
Result<TextCodec> open_codec(const TrainConfig& config, const std::vector<std::string>& files, Io& io);

/// The paths of the data files of `key`. Errors: `invalid` if there are none, `unsupported` for other
/// formats.
Result<std::vector<std::string>> locate_data_files(const std::vector<std::string>& paths,
                                                   std::string_view key);

/// Opens the files as tokens: a single packed file directly, others through a cache in data.cache_dir, which
/// must exist. Adds to `notes` what was read. Errors: those of reading; `invalid` for bad records, an empty
/// corpus, or a token that the model has no row for.
Result<std::unique_ptr<TokenCache>> open_token_cache(const TrainConfig& config, const TextCodec& codec,
                                                     const std::vector<std::string>& files, Io& io,
                                                     std::vector<std::string>& notes);

/// Whether the loss mask excludes some of the tokens.
bool is_masked(const TokenCache& cache);
/// A digest of tokens, loss masks and, with packing "pack", documents, in hex: equal digests mean equal data.
std::string data_digest(const Tokenizer& tokenizer, std::span<const std::unique_ptr<TokenCache>> caches,
                        std::string_view packing);
/// Whether documents should stay whole: some tokens are not in the loss, or a model from a folder reads
/// several documents, most of which fit into model.seq, as records do.
bool has_whole_documents(const TrainConfig& config, const TokenCache& cache);
/// "stream" or "pack": data.packing or, if that is `auto`, the choice for data with whole documents or not.
std::string resolve_packing(const TrainConfig& config, bool whole);

struct TokenDataset {
  std::unique_ptr<Dataset> data;
  std::uint64_t memory_bytes = 0;  ///< in addition to the cache
  std::uint64_t n_split = 0;       ///< documents that are longer than a row, each of which is several
};
/// A dataset with rows of model.seq tokens. Errors: `invalid` if a row is longer than the data.
Result<TokenDataset> create_dataset(const TokenCache& cache, const TrainConfig& config,
                                    const std::string& packing, SampleOrder order, std::uint64_t seed);

}  // namespace strata
