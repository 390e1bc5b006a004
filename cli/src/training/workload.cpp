#include "training/workload.h"

#include <strata/graph/passes.h>
#include <strata/runtime/digest.h>
#include <strata/runtime/str.h>

namespace strata::cli {
namespace {

constexpr std::uint64_t kMaxCorpusBytes = std::uint64_t{1}
                                          << 32;  // of one file that a tokenizer is trained on

Result<std::vector<std::string>> located(const std::vector<std::string>& paths, std::string_view key) {
  if (paths.empty()) return Status::error(Code::invalid, str(key, " names no file"));
  const std::vector<std::string> dirs = default_data_dirs();
  std::vector<std::string> found;
  for (const std::string& path : paths) found.push_back(locate_data_file(path, dirs));
  return found;
}

Result<Tokenizer> make_tokenizer(const TrainConfig& config, const std::vector<std::string>& files, Io& io) {
  if (config.data.tokenizer) {
    auto loaded = Tokenizer::load(io, *config.data.tokenizer);
    return loaded.has_value() ? std::move(loaded)
                              : Result<Tokenizer>(loaded.status().annotate("data.tokenizer"));
  }
  std::vector<std::string> texts;
  for (const std::string& file : files) {
    auto read = read_text(io, file, kMaxCorpusBytes);
    if (!read.has_value()) return read.status().annotate("data.train");
    std::string text = *std::move(read);
    texts.push_back(std::move(text));
  }
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  auto trained = Tokenizer::train(views, config.model.vocab);
  return trained.has_value() ? std::move(trained)
                             : Result<Tokenizer>(trained.status().annotate("model.vocab"));
}

// Caches of different texts or tokenizers never share a name.
std::string cache_path(const TrainConfig& config, const Tokenizer& tokenizer,
                       const std::vector<std::string>& files) {
  Digester names;
  for (const std::string& file : files) names.update(std::as_bytes(std::span(file.data(), file.size() + 1)));
  names.update(tokenizer.digest());
  return str(config.data.cache_dir, "/", to_hex(names.digest()), ".tokens");
}

}  // namespace

Result<std::unique_ptr<Workload>> Workload::open(const TrainConfig& config, Io& io) {
  auto workload = std::make_unique<Workload>();
  STRATA_TRY_ASSIGN(const std::vector<std::string> train_files, located(config.data.train, "data.train"));
  STRATA_TRY_ASSIGN(Tokenizer tokenizer, make_tokenizer(config, train_files, io));
  if (tokenizer.vocab_size() > config.model.vocab)
    return Status::error(Code::invalid, str("the tokenizer has ", tokenizer.vocab_size(),
                                            " tokens and model.vocab is ", config.model.vocab));
  workload->tokenizer_ = std::make_unique<Tokenizer>(std::move(tokenizer));

  STRATA_TRY(io.make_dirs(config.data.cache_dir));
  const auto cache = [&](const std::vector<std::string>& files, std::string_view key) {
    auto opened = TokenCache::open_or_build(io, *workload->tokenizer_, files,
                                            cache_path(config, *workload->tokenizer_, files));
    return opened.has_value() ? std::move(opened) : decltype(opened)(opened.status().annotate(key));
  };
  STRATA_TRY_ASSIGN(workload->train_cache_, cache(train_files, "data.train"));
  const auto annotate = [](Result<StreamDataset>&& data, std::string_view key) -> Result<StreamDataset> {
    return data.has_value() ? std::move(data) : Result<StreamDataset>(data.status().annotate(key));
  };
  STRATA_TRY_ASSIGN(StreamDataset train,
                    annotate(StreamDataset::create(*workload->train_cache_, {.seq = config.model.seq,
                                                                             .order = SampleOrder::shuffled,
                                                                             .seed = config.train.seed}),
                             "data.train"));
  workload->train_ = std::make_unique<StreamDataset>(train);
  if (config.data.val.empty()) return workload;
  STRATA_TRY_ASSIGN(const std::vector<std::string> val_files, located(config.data.val, "data.val"));
  STRATA_TRY_ASSIGN(workload->val_cache_, cache(val_files, "data.val"));
  STRATA_TRY_ASSIGN(
      StreamDataset val,
      annotate(StreamDataset::create(*workload->val_cache_, {.seq = config.model.seq}), "data.val"));
  workload->val_ = std::make_unique<StreamDataset>(val);
  return workload;
}

std::uint64_t Workload::mapped_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const TokenCache* cache : {train_cache_.get(), val_cache_.get()})
    if (cache != nullptr) bytes += cache->n_tokens() * (cache->vocab_size() <= 65536 ? 2 : 4);
  return bytes;
}

std::string Workload::data_digest() const {
  Digester digester;
  digester.update(tokenizer_->digest());
  for (std::uint64_t i = 0; i < train_cache_->n_tokens(); ++i) {
    const std::int32_t token = train_cache_->token(i);
    digester.update(std::as_bytes(std::span(&token, 1)));
  }
  return to_hex(digester.digest());
}

DecoderConfig decoder_config(const TrainConfig& config) {
  const TrainConfig::Model& m = config.model;
  return {.family = m.family,
          .layers = m.layers,
          .hidden = m.hidden,
          .heads = m.heads,
          .ffn = m.ffn,
          .vocab = m.vocab,
          .seq = m.seq};
}

Result<ProgramSet> record_programs(const TrainConfig& config, bool recompute) {
  const DecoderConfig decoder = decoder_config(config);
  ProgramSet set;
  STRATA_TRY_ASSIGN(set.eval, record_decoder(decoder, config.train.micro_batch, DecoderHead::loss));
  STRATA_TRY_ASSIGN(set.train, derive_backward(set.eval, "loss"));
  if (recompute) set.train = recompute_regions(std::move(set.train));
  STRATA_TRY_ASSIGN(set.infer, record_decoder(decoder, 1, DecoderHead::logits));
  return set;
}

}  // namespace strata::cli
