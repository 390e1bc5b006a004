#include "training/workload.h"

#include <algorithm>

#include <strata/graph/passes.h>
#include <strata/model/documents.h>
#include <strata/runtime/digest.h>
#include <strata/runtime/str.h>

namespace strata::cli {
namespace {

constexpr std::uint64_t kMaxCorpusBytes = std::uint64_t{1}
                                          << 32;  // of one file that a tokenizer is trained on

template <class T>
Result<T> annotated(Result<T> result, std::string_view doing) {
  return result.has_value() ? std::move(result) : Result<T>(result.status().annotate(doing));
}

Result<std::vector<std::string>> located(const std::vector<std::string>& paths, std::string_view key) {
  if (paths.empty()) return Status::error(Code::invalid, str(key, " names no file"));
  const std::vector<std::string> dirs = default_data_dirs();
  std::vector<std::string> found;
  for (const std::string& path : paths) {
    STRATA_TRY(check_source_name(path).annotate(key));
    found.push_back(locate_data_file(path, dirs));
  }
  return found;
}

/// All text of a file that a tokenizer may learn from.
Status add_texts(Io& io, const std::string& file, std::vector<std::string>& texts) {
  STRATA_TRY_ASSIGN(const bool packed, TokenCache::is_cache(io, file));
  if (packed)
    return Status::error(
        Code::invalid,
        str(file, " is a packed file: data.tokenizer must name the tokenizer it was made with"));
  if (is_jsonl(file))
    return read_jsonl(io, file, ChatTemplate{},
                      [&](const Document& document) {
                        texts.push_back(document.text());
                        return Status::ok();
                      })
        .status();
  STRATA_TRY_ASSIGN(std::string text, read_text(io, file, kMaxCorpusBytes));
  texts.push_back(std::move(text));
  return {};
}

Result<Tokenizer> make_tokenizer(const TrainConfig& config, const std::vector<std::string>& files, Io& io) {
  if (const std::string source = tokenizer_source(config); !source.empty())
    return annotated(Tokenizer::load(io, source), config.data.tokenizer ? "data.tokenizer" : "model.from");
  std::vector<std::string> texts;
  for (const std::string& file : files) STRATA_TRY(add_texts(io, file, texts).annotate("data.train"));
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  return annotated(Tokenizer::train(views, config.model.vocab), "model.vocab");
}

// Caches of different texts, tokenizers or chat templates never share a name.
std::string cache_path(const TrainConfig& config, const Tokenizer& tokenizer,
                       const Result<ChatTemplate>& chat, const std::vector<std::string>& files) {
  Digester names;
  for (const std::string& file : files) names.update(std::as_bytes(std::span(file.data(), file.size() + 1)));
  names.update(tokenizer.digest());
  if (chat.has_value() && std::any_of(files.begin(), files.end(), is_jsonl)) names.update(chat->digest());
  return str(config.data.cache_dir, "/", to_hex(names.digest()), ".tokens");
}

bool is_masked(const TokenCache& cache) { return cache.n_learnt() < cache.n_tokens(); }

}  // namespace

/// The steps of Workload::open.
class WorkloadOpener {
 public:
  WorkloadOpener(const TrainConfig& config, Io& io, Workload& into) : config_(config), io_(io), into_(into) {}

  Status open() {
    STRATA_TRY_ASSIGN(const std::vector<std::string> train, located(config_.data.train, "data.train"));
    STRATA_TRY_ASSIGN(Tokenizer tokenizer, make_tokenizer(config_, train, io_));
    if (tokenizer.vocab_size() > config_.model.vocab)
      return Status::error(Code::invalid, str("the tokenizer has ", tokenizer.vocab_size(),
                                              " tokens and model.vocab is ", config_.model.vocab));
    into_.tokenizer_ = std::make_unique<Tokenizer>(std::move(tokenizer));
    STRATA_TRY_ASSIGN(into_.chat_, choose_chat(io_, config_.data.chat, tokenizer_source(config_)));
    STRATA_TRY(io_.make_dirs(config_.data.cache_dir));
    STRATA_TRY(open_caches(train));
    decide_packing();
    return make_datasets();
  }

 private:
  Status open_caches(const std::vector<std::string>& train) {
    std::vector<std::vector<std::string>> groups = {train};
    if (!config_.data.weights.empty()) {  // each file goes through its own epochs
      groups.clear();
      for (const std::string& file : train) groups.push_back({file});
    }
    for (const std::vector<std::string>& files : groups) {
      STRATA_TRY_ASSIGN(auto cache, annotated(cache_of(files), "data.train"));
      into_.train_caches_.push_back(std::move(cache));
    }
    if (config_.data.val.empty()) return {};
    STRATA_TRY_ASSIGN(const std::vector<std::string> val, located(config_.data.val, "data.val"));
    STRATA_TRY_ASSIGN(into_.val_cache_, annotated(cache_of(val), "data.val"));
    return {};
  }

  Result<std::unique_ptr<TokenCache>> cache_of(const std::vector<std::string>& files) {
    for (const std::string& file : files) {
      STRATA_TRY_ASSIGN(const bool packed, TokenCache::is_cache(io_, file));
      if (!packed) continue;
      if (files.size() > 1)
        return Status::error(Code::invalid, str(file, " is a packed file; one of ", files.size(),
                                                " files, it needs data.weights, or to be packed with them"));
      return TokenCache::open(io_, *into_.tokenizer_, file);
    }
    auto cache = TokenCache::open_or_build(io_, *into_.tokenizer_, files,
                                           cache_path(config_, *into_.tokenizer_, into_.chat_.chat, files),
                                           into_.chat_.chat);
    if (cache.has_value())
      into_.notes_.insert(into_.notes_.end(), (*cache)->notes().begin(), (*cache)->notes().end());
    return cache;
  }

  // One for both, so that a validation loss does not depend on when auto was decided.
  void decide_packing() {
    const auto& caches = into_.train_caches_;
    const bool masked =
        std::any_of(caches.begin(), caches.end(), [](const auto& c) { return is_masked(*c); }) ||
        (into_.val_cache_ != nullptr && is_masked(*into_.val_cache_));
    into_.packing_ = config_.data.packing != "auto" ? config_.data.packing : masked ? "pack" : "stream";
  }

  Status make_datasets() {
    const SampleOrder order = SampleOrder::shuffled;
    const std::vector<double>& weights = config_.data.weights;
    std::vector<MixedSource> sources;
    for (std::size_t i = 0; i < into_.train_caches_.size(); ++i) {
      // Files of one size would else be gone through in one order.
      const std::uint64_t seed = config_.train.seed + i * 0x9E3779B97F4A7C15;
      STRATA_TRY_ASSIGN(auto part,
                        annotated(dataset_of(*into_.train_caches_[i], order, seed),
                                  weights.empty() ? "data.train" : "data.train: " + config_.data.train[i]));
      if (!weights.empty()) sources.push_back({config_.data.train[i], part.get(), weights[i]});
      into_.parts_.push_back(std::move(part));
    }
    if (weights.empty()) {
      into_.train_ = std::move(into_.parts_.front());
      into_.parts_.clear();
    } else {
      STRATA_TRY_ASSIGN(
          MixedDataset mixed,
          annotated(MixedDataset::create(std::move(sources), config_.train.seed), "data.weights"));
      into_.train_ = std::make_unique<MixedDataset>(std::move(mixed));
    }
    if (into_.val_cache_ == nullptr) return {};
    STRATA_TRY_ASSIGN(into_.val_,
                      annotated(dataset_of(*into_.val_cache_, SampleOrder::in_order, 0), "data.val"));
    if (const auto rows = static_cast<std::uint64_t>(config_.train.micro_batch);
        into_.val_->n_samples() < rows)
      into_.notes_.push_back(str("data.val has ", into_.val_->n_samples(),
                                 " sequences, fewer than train.micro_batch = ", rows,
                                 ": nothing is validated"));
    return {};
  }

  Result<std::unique_ptr<Dataset>> dataset_of(const TokenCache& cache, SampleOrder order,
                                              std::uint64_t seed) {
    if (into_.packing_ == "pack") {
      STRATA_TRY_ASSIGN(
          PackedDataset packed,
          PackedDataset::create(cache, {.seq = config_.model.seq, .order = order, .seed = seed}));
      into_.packed_bytes_ += packed.memory_bytes();
      return std::unique_ptr<Dataset>(std::make_unique<PackedDataset>(std::move(packed)));
    }
    STRATA_TRY_ASSIGN(StreamDataset stream,
                      StreamDataset::create(cache, {.seq = config_.model.seq, .order = order, .seed = seed}));
    return std::unique_ptr<Dataset>(std::make_unique<StreamDataset>(std::move(stream)));
  }

  const TrainConfig& config_;
  Io& io_;
  Workload& into_;
};

Result<std::unique_ptr<Workload>> Workload::open(const TrainConfig& config, Io& io) {
  auto workload = std::make_unique<Workload>();
  STRATA_TRY(WorkloadOpener(config, io, *workload).open());
  return workload;
}

std::uint64_t Workload::data_bytes() const noexcept {
  std::uint64_t bytes = packed_bytes_ + (val_cache_ != nullptr ? val_cache_->mapped_bytes() : 0);
  for (const auto& cache : train_caches_) bytes += cache->mapped_bytes();
  return bytes;
}

// Of a stream of text the tokens alone: what checkpoints made before there was more than that hold.
std::string Workload::data_digest() const {
  Digester digester;
  const auto add = [&](const auto& value) { digester.update(std::as_bytes(std::span(&value, 1))); };
  digester.update(tokenizer_->digest());
  for (const auto& cache : train_caches_) {
    for (std::uint64_t i = 0; i < cache->n_tokens(); ++i) add(cache->token(i));
    for (std::uint64_t i = 0; i < cache->n_tokens() && is_masked(*cache); ++i) add(cache->learnt(i));
    for (std::uint64_t d = 0; d < cache->n_documents() && packing_ == "pack"; ++d)
      add(cache->document_begin(d));
  }
  return to_hex(digester.digest());
}

DecoderConfig decoder_config(const TrainConfig& config) {
  const TrainConfig::Model& m = config.model;
  if (m.loaded) {
    DecoderConfig decoder = *m.loaded;
    decoder.seq = m.seq;
    return decoder;
  }
  DecoderConfig decoder = decoder_of_family(m.family).value();  // the schema knows the families
  decoder.layers = m.layers;
  decoder.hidden = m.hidden;
  decoder.heads = m.heads;
  decoder.kv_heads = m.kv_heads.value_or(0);
  decoder.ffn = m.ffn;
  decoder.vocab = m.vocab;
  decoder.seq = m.seq;
  return decoder;
}

Result<ProgramSet> record_programs(const TrainConfig& config, bool recompute) {
  const DecoderConfig decoder = decoder_config(config);
  const DType compute = config.train.dtype == "bf16" ? DType::bf16 : DType::f32;
  ProgramSet set;
  const DecoderRows rows = config.data.packing == "pack" ? DecoderRows::packed : DecoderRows::whole;
  STRATA_TRY_ASSIGN(set.eval,
                    record_decoder(decoder, config.train.micro_batch, DecoderHead::loss, rows, compute));
  STRATA_TRY_ASSIGN(set.train, derive_backward(set.eval, "loss"));
  if (recompute) set.train = recompute_regions(std::move(set.train));
  STRATA_TRY_ASSIGN(set.infer, record_decoder(decoder, 1, DecoderHead::logits, DecoderRows::whole, compute));
  return set;
}

}  // namespace strata::cli
