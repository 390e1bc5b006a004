#include <strata/batches/token_data.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include <strata/config/data_files.h>
#include <strata/config/train_config.h>
#include <strata/model/adapter/adapter_settings.h>
#include <strata/text/documents.h>
#include <strata/model/hf/explain_folder.h>
#include <strata/text/tokenizer_reader.h>
#include <strata/text/model_rows.h>
#include <strata/runtime/error_list.h>
#include <strata/runtime/io/digest.h>
#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>
#include <strata/config/objective.h>

namespace strata {
namespace {

constexpr std::uint64_t kMaxCorpusBytes = std::uint64_t{1} << 32;  // one file that a tokenizer is trained on

/// Appends all text of a file, to train a tokenizer on.
Status add_texts(Io& io, const std::string& file, RecordUse use, std::vector<std::string>& texts) {
  STRATA_TRY_ASSIGN(const bool packed, TokenCache::is_cache(io, file));
  if (packed)
    return Status::error(
        Code::invalid,
        str(file, " is a packed file; set data.tokenizer to the tokenizer it was packed with"));
  if (has_records(file))
    return read_records(
               io, file, ChatTemplate{},
               [&](const Document& document) {
                 texts.push_back(document.text());
                 return Status::ok();
               },
               use)
        .status();
  STRATA_TRY_ASSIGN(std::string text, read_source_text(io, file, kMaxCorpusBytes));
  texts.push_back(std::move(text));
  return {};
}

Result<Tokenizer> make_tokenizer(const TrainConfig& config, const std::vector<std::string>& files, Io& io) {
  if (const std::string source = tokenizer_source(config); !source.empty())
    return annotated(Tokenizer::load(io, source), config.data.tokenizer ? "data.tokenizer" : "model.from");
  std::vector<std::string> texts;
  ErrorList bad;
  for (const std::string& file : files)
    bad.add(add_texts(io, file, record_use(config), texts).annotate("data.train"));
  STRATA_TRY(bad.status());
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  return annotated(Tokenizer::train(views, config.model.vocab, own_split(config.model.family)),
                   "model.vocab");
}

// Caches of different sources, tokenizers or chat templates never share a path.
std::string cache_path(const TrainConfig& config, const TextCodec& codec,
                       const std::vector<std::string>& files) {
  Digester names;
  for (const std::string& file : files) names.update(std::as_bytes(std::span(file.data(), file.size() + 1)));
  names.update(codec.tokenizer.document_digest());
  if (objective_of(config).data == RunData::pairs) names.update(std::as_bytes(std::span("pairs", 5)));
  if (const auto& chat = codec.chat.chat;
      chat.has_value() && std::any_of(files.begin(), files.end(), has_records))
    names.update(chat->digest());
  return str(config.data.cache_dir, "/", to_hex(names.digest()), ".tokens");
}

/// The cache, unless it has a token that the model has no row for.
Result<std::unique_ptr<TokenCache>> with_rows(const TrainConfig& config, const TextCodec& codec,
                                              Result<std::unique_ptr<TokenCache>> cache,
                                              const std::string& files) {
  if (cache.has_value())
    STRATA_TRY(check_token_rows(codec.tokenizer, **cache, config.model.vocab).annotate(files));
  return cache;
}

}  // namespace

Result<TextCodec> open_codec(const TrainConfig& config, const std::vector<std::string>& files, Io& io) {
  STRATA_TRY_ASSIGN(Tokenizer tokenizer, make_tokenizer(config, files, io));
  STRATA_TRY(check_tokenizer_rows(tokenizer, config.model.vocab));
  return TextCodec{std::move(tokenizer), config.data.chosen_chat};
}

Result<std::vector<std::string>> locate_data_files(const std::vector<std::string>& paths,
                                                   std::string_view key) {
  if (paths.empty()) return Status::error(Code::invalid, str(key, " is empty; name at least one file"));
  const std::vector<std::string> dirs = default_data_dirs();
  const bool evaluates = key == "data.val" || key == "--data";
  std::vector<std::string> found;
  ErrorList bad;
  for (const std::string& path : paths) {
    bad.add(check_source_name(path).annotate(key));
    bad.add(explain_missing_data(posix_io(), path).annotate(key));
    const std::string file = locate_data_file(path, dirs);
    std::error_code ignored;
    if (!std::filesystem::is_directory(file, ignored)) {
      found.push_back(file);
      continue;
    }
    const auto files = data_files_of(posix_io(), file, evaluates ? DataSplit::validation : DataSplit::train,
                                     [](const std::string&) {});
    bad.add(files.status().annotate(key));
    if (files.has_value()) found.insert(found.end(), files->begin(), files->end());
  }
  STRATA_TRY(bad.status());
  return found;
}

Result<std::unique_ptr<TokenCache>> open_token_cache(const TrainConfig& config, const TextCodec& codec,
                                                     const std::vector<std::string>& files, Io& io,
                                                     std::vector<std::string>& notes) {
  for (const std::string& file : files) {
    // Files that cannot be read are reported below, with all other bad ones.
    if (!TokenCache::is_cache(io, file).value_or(false)) continue;
    if (objective_of(config).data == RunData::pairs)
      return Status::error(Code::unsupported,
                           str(file, " is a packed file, which cannot hold pairs; name .jsonl files"));
    if (files.size() > 1)
      return Status::error(Code::invalid, str(file, " is a packed file among ", files.size(),
                                              " files; set data.weights, or pack all files together"));
    return with_rows(config, codec, TokenCache::open(io, codec.tokenizer, file), file);
  }
  auto cache = TokenCache::open_or_build(io, codec.tokenizer, files, cache_path(config, codec, files),
                                         codec.chat.chat, record_use(config));
  if (cache.has_value()) notes.insert(notes.end(), (*cache)->notes().begin(), (*cache)->notes().end());
  const std::string more = files.size() > 1 ? str(" and ", plural(files.size() - 1, "other file")) : "";
  return with_rows(config, codec, std::move(cache), files.front() + more);
}

bool is_masked(const TokenCache& cache) { return cache.n_loss_tokens() < cache.n_tokens(); }

bool is_cudnn_alone(const std::string& order) { return order == "cudnn" || order.starts_with("cudnn/"); }

bool has_whole_documents(const TrainConfig& config, const TokenCache& cache) {
  if (is_masked(cache)) return true;
  const std::uint64_t n = cache.n_documents(), seq = static_cast<std::uint64_t>(config.model.seq);
  // cuDNN has no attention within documents.
  if (config.model.from.empty() || !config.model.states.empty() || n < 2 ||
      is_cudnn_alone(config.train.attention_backend))
    return false;
  std::uint64_t n_whole = 0;
  for (std::uint64_t d = 0; d < n; ++d) n_whole += cache.document_end(d) - cache.document_begin(d) <= seq;
  return 2 * n_whole >= n;
}

std::string resolve_packing(const TrainConfig& config, bool whole) {
  if (config.data.packing != "auto") return config.data.packing;
  return whole && virtual_tokens(config) == 0 ? "pack" : "stream";
}

Result<TokenDataset> create_dataset(const TokenCache& cache, const TrainConfig& config,
                                    const std::string& packing, SampleOrder order, std::uint64_t seed) {
  if (packing == "pack") {
    STRATA_TRY_ASSIGN(PackedDataset packed,
                      PackedDataset::create(cache, {.seq = config.model.seq, .order = order, .seed = seed}));
    const std::uint64_t bytes = packed.memory_bytes(), n_split = packed.stats().n_split;
    return TokenDataset{std::make_unique<PackedDataset>(std::move(packed)), bytes, n_split};
  }
  STRATA_TRY_ASSIGN(StreamDataset stream,
                    StreamDataset::create(cache, {.seq = config.model.seq, .order = order, .seed = seed}));
  return TokenDataset{std::make_unique<StreamDataset>(std::move(stream))};
}

namespace {

/// Collects small values and digests them in blocks.
class BufferedDigester {
 public:
  explicit BufferedDigester(Digester& digester) : digester_(digester) {}
  ~BufferedDigester() { flush(); }
  BufferedDigester(const BufferedDigester&) = delete;
  BufferedDigester& operator=(const BufferedDigester&) = delete;
  template <class T>
  void add(const T& value) {
    if (n_ + sizeof value > block_.size()) flush();
    std::memcpy(block_.data() + n_, &value, sizeof value);
    n_ += sizeof value;
  }

 private:
  void flush() {
    digester_.update(std::span(block_).first(n_));
    n_ = 0;
  }
  Digester& digester_;
  std::array<std::byte, 16384> block_;
  std::size_t n_ = 0;
};

}  // namespace

// For a stream of plain text only the tokens are digested, so that the digest equals the one in checkpoints
// that were made before loss masks and packing existed.
std::string data_digest(const Tokenizer& tokenizer, std::span<const std::unique_ptr<TokenCache>> caches,
                        std::string_view packing) {
  Digester digester;
  digester.update(tokenizer.digest());
  {
    BufferedDigester block(digester);
    for (const auto& cache : caches) {
      for (std::uint64_t i = 0; i < cache->n_tokens(); ++i) block.add(cache->token(i));
      for (std::uint64_t i = 0; i < cache->n_tokens() && is_masked(*cache); ++i)
        block.add(cache->loss_mask(i));
      for (std::uint64_t d = 0; d < cache->n_documents() && packing == "pack"; ++d)
        block.add(cache->document_begin(d));
    }
  }
  return to_hex(digester.digest());
}

}  // namespace strata
