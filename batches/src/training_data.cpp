#include <strata/batches/training_data.h>

#include <algorithm>

#include <strata/config/train_config.h>
#include <strata/text/model_rows.h>
#include <strata/runtime/error_list.h>
#include <strata/runtime/io/digest.h>
#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>
#include <strata/config/objective.h>
#include <strata/batches/pair_batches.h>
#include <strata/batches/prompt_set.h>

namespace strata {

/// The steps of TrainingData::open().
class TrainingDataBuilder {
 public:
  TrainingDataBuilder(const TrainConfig& config, Io& io, TrainingData& into)
      : config_(config), io_(io), into_(into) {}

  Status open() {
    STRATA_TRY_ASSIGN(const std::vector<std::string> train,
                      locate_data_files(config_.data.train, "data.train"));
    STRATA_TRY_ASSIGN(TextCodec codec, open_codec(config_, train, io_));
    into_.codec_ = std::make_unique<TextCodec>(std::move(codec));
    into_.notes_ = config_.data.notes;
    into_.notes_.push_back(describe(into_.tokenizer().markers(), into_.tokenizer()));
    if (std::string warning = config_.data.chosen_chat.warning(); !warning.empty())
      into_.notes_.push_back(std::move(warning));
    if (config_.log.sample_prompt != "auto")
      STRATA_TRY(check_token_rows(into_.tokenizer(), into_.tokenizer().encode(config_.log.sample_prompt),
                                  config_.model.vocab)
                     .annotate("log.sample_prompt"));
    if (std::string note = into_.tokenizer().note(); !note.empty()) into_.notes_.push_back(std::move(note));
    into_.seq_ = config_.model.seq;
    const Objective& objective = objective_of(config_);
    if (objective.data == RunData::prompts) return open_prompts(train);
    STRATA_TRY(io_.make_dirs(config_.data.cache_dir));
    STRATA_TRY(open_caches(train));
    decide_packing();
    count_documents();
    decide_seq();
    STRATA_TRY(objective.data == RunData::pairs ? make_pairs() : make_datasets());
    into_.data_digest_ = data_digest(into_.tokenizer(), into_.train_caches_, into_.packing_);
    if (objective.has_reference && !into_.val_caches_.empty())
      into_.val_digest_ = data_digest(into_.tokenizer(), into_.val_caches_, into_.packing_);
    return {};
  }

 private:
  Status open_prompts(const std::vector<std::string>& files) {
    const std::int64_t most = policy_sizes(config_).max_prompt;
    STRATA_TRY_ASSIGN(
        PromptSet prompts,
        annotated(PromptSet::read(files, *into_.codec_, most, config_.model.vocab, io_), "data.train"));
    if (prompts.n_left_out() > 0)
      into_.notes_.push_back(str(plural(prompts.n_left_out(), "prompt"), " of more than ", most,
                                 " tokens (align.max_prompt) left out; there are ", prompts.size()));
    into_.packing_ = "pack";
    for (std::size_t i = 0; i < prompts.size(); ++i)
      into_.has_conversations_ = into_.has_conversations_ || !prompts.prompt(i).messages.empty();
    if (!config_.data.mixture.empty()) STRATA_TRY(open_mixture());
    into_.size_.n_documents = prompts.size();
    const std::string of_prompts = to_hex(prompts.digest());
    into_.data_digest_ =
        into_.mixture_ == nullptr
            ? of_prompts
            : str(of_prompts, "+", data_digest(into_.tokenizer(), into_.train_caches_, into_.packing_));
    into_.prompts_ = std::make_unique<const PromptSet>(std::move(prompts));
    return {};
  }

  Status open_mixture() {
    STRATA_TRY_ASSIGN(const std::vector<std::string> files,
                      locate_data_files(config_.data.mixture, "data.mixture"));
    STRATA_TRY(io_.make_dirs(config_.data.cache_dir));
    STRATA_TRY_ASSIGN(auto cache, annotated(cache_of(files), "data.mixture"));
    into_.train_caches_.push_back(std::move(cache));
    STRATA_TRY_ASSIGN(into_.mixture_, annotated(dataset_of(*into_.train_caches_.back(), SampleOrder::shuffled,
                                                           config_.train.seed),
                                                "data.mixture"));
    return {};
  }

  Status open_caches(const std::vector<std::string>& train) {
    std::vector<std::vector<std::string>> groups = {train};
    if (!config_.data.weights.empty()) {  // each file has its own epochs
      groups.clear();
      for (const std::string& file : train) groups.push_back({file});
    }
    ErrorList bad;
    for (const std::vector<std::string>& files : groups) {
      auto cache = annotated(cache_of(files), "data.train");
      bad.add(cache.status());
      if (cache.has_value()) into_.train_caches_.push_back(*std::move(cache));
    }
    if (!config_.data.val.empty()) bad.add(open_val());
    return bad.status();
  }

  Status open_val() {
    STRATA_TRY_ASSIGN(const std::vector<std::string> val, locate_data_files(config_.data.val, "data.val"));
    STRATA_TRY_ASSIGN(auto cache, annotated(cache_of(val), "data.val"));
    into_.val_caches_.push_back(std::move(cache));
    return {};
  }

  Result<std::unique_ptr<TokenCache>> cache_of(const std::vector<std::string>& files) {
    return open_token_cache(config_, *into_.codec_, files, io_, into_.notes_);
  }

  // In whole multiples of 16, which kernels like.
  void decide_seq() {
    constexpr std::int64_t kMultiple = 16;
    int& seq = config_.model.seq;
    const auto longest = static_cast<std::int64_t>(into_.size_.longest);
    if (config_.model.seq_is_most)
      seq = static_cast<int>(std::min<std::int64_t>(seq, (longest + kMultiple - 1) / kMultiple * kMultiple));
    into_.seq_ = seq;
  }

  void count_documents() {
    DataSize& size = into_.size_;
    for (const auto& cache : into_.train_caches_) {
      size.n_documents += cache->n_documents();
      size.n_tokens += cache->n_tokens();
      for (std::uint64_t d = 0; d < cache->n_documents(); ++d)
        size.longest = std::max(size.longest, cache->document_end(d) - cache->document_begin(d));
    }
  }

  // One packing for training and validation, so that the validation loss does not depend on when `auto` was
  // resolved.
  void decide_packing() {
    const auto& caches = into_.train_caches_;
    const bool whole = std::any_of(caches.begin(), caches.end(),
                                   [&](const auto& c) { return has_whole_documents(config_, *c); }) ||
                       (!into_.val_caches_.empty() && is_masked(*into_.val_caches_.front()));
    const auto has_chats = [](const auto& cache) { return cache->has_conversations(); };
    into_.has_conversations_ = std::any_of(caches.begin(), caches.end(), has_chats);
    into_.packing_ = objective_of(config_).data == RunData::pairs ? "pack" : resolve_packing(config_, whole);
  }

  Status make_pairs() {
    STRATA_TRY_ASSIGN(into_.train_pairs_,
                      pairs_of(*into_.train_caches_.front(), SampleOrder::shuffled, "data.train"));
    into_.size_.epoch_rows = into_.train_pairs_->data().stats().n_batches;
    if (into_.val_caches_.empty()) return {};
    STRATA_TRY_ASSIGN(into_.val_pairs_,
                      pairs_of(*into_.val_caches_.front(), SampleOrder::sequential, "data.val"));
    return {};
  }

  Result<std::unique_ptr<PairBatches>> pairs_of(const TokenCache& cache, SampleOrder order, const char* key) {
    STRATA_TRY_ASSIGN(
        PairDataset data,
        annotated(PairDataset::create(cache, pair_options(config_, order, into_.tokenizer())), key));
    const PairStats& stats = data.stats();
    if (stats.n_cut + stats.n_dropped > 0)
      into_.notes_.push_back(str(key, ": of ", data.n_pairs_of_cache(), " pairs, ", stats.n_cut,
                                 " are cut to model.seq = ", config_.model.seq, ", and ", stats.n_dropped,
                                 " have an answer without tokens"));
    into_.packed_bytes_ += data.memory_bytes();
    if (objective_of(config_).has_reference)
      into_.packed_bytes_ += 2 * data.n_pairs_of_cache() * sizeof(float);
    return std::make_unique<PairBatches>(std::move(data));
  }

  Status make_datasets() {
    const SampleOrder order = SampleOrder::shuffled;
    const std::vector<double>& weights = config_.data.weights;
    std::vector<MixedSource> sources;
    for (std::size_t i = 0; i < into_.train_caches_.size(); ++i) {
      // Different seeds, since files of equal size would otherwise be read in the same order.
      const std::uint64_t seed = config_.train.seed + i * 0x9E3779B97F4A7C15;
      STRATA_TRY_ASSIGN(auto part,
                        annotated(dataset_of(*into_.train_caches_[i], order, seed, &into_.size_),
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
    into_.size_.epoch_rows = into_.train_->n_epoch_samples();
    if (into_.val_caches_.empty()) return {};
    STRATA_TRY_ASSIGN(
        into_.val_,
        annotated(dataset_of(*into_.val_caches_.front(), SampleOrder::sequential, 0), "data.val"));
    return {};
  }

  Result<std::unique_ptr<Dataset>> dataset_of(const TokenCache& cache, SampleOrder order, std::uint64_t seed,
                                              DataSize* counted = nullptr) {
    STRATA_TRY_ASSIGN(TokenDataset rows, create_dataset(cache, config_, into_.packing_, order, seed));
    into_.packed_bytes_ += rows.memory_bytes;
    if (counted != nullptr) counted->n_split += rows.n_split;
    return std::move(rows.data);
  }

  TrainConfig config_;  // has the decided model.seq
  Io& io_;
  TrainingData& into_;
};

TrainingData::~TrainingData() = default;

Result<std::unique_ptr<TrainingData>> TrainingData::open(const TrainConfig& config, Io& io) {
  auto training_data = std::make_unique<TrainingData>();
  training_data->seed_ = config.train.seed;
  STRATA_TRY(TrainingDataBuilder(config, io, *training_data).open());
  return training_data;
}

std::unique_ptr<MicroBatches> TrainingData::train_batches(std::int64_t sequences) const {
  if (prompts_ != nullptr) return nullptr;
  if (train_pairs_ != nullptr) return std::make_unique<PairBatches>(*train_pairs_);
  return std::make_unique<DatasetBatches>(*train_, sequences, seed_);
}

std::unique_ptr<MicroBatches> TrainingData::val_batches(std::int64_t sequences) const {
  if (val_pairs_ != nullptr) return std::make_unique<PairBatches>(*val_pairs_);
  if (val_ == nullptr) return nullptr;
  return std::make_unique<DatasetBatches>(*val_, sequences);
}

std::unique_ptr<MicroBatches> TrainingData::mixture_batches(std::int64_t sequences) const {
  if (mixture_ == nullptr) return nullptr;
  return std::make_unique<DatasetBatches>(*mixture_, sequences);
}

std::vector<std::int32_t> TrainingData::first_prompt() const {
  constexpr std::uint64_t kWords = 8;  // tokens of a text without a prompt
  const TokenCache& cache = *(val_caches_.empty() ? train_caches_ : val_caches_).front();
  const std::uint64_t begin = cache.document_begin(0), end = cache.document_end(0);
  std::uint64_t until = begin + 1;  // a first token precedes the first target
  while (until < end && !cache.loss_mask(until)) ++until;
  if (until == begin + 1) until = std::min(end, begin + kWords);
  std::vector<std::int32_t> ids;
  for (std::uint64_t i = begin; i < until; ++i) ids.push_back(cache.token(i));
  return ids;
}

std::uint64_t TrainingData::data_bytes() const noexcept {
  std::uint64_t bytes = packed_bytes_;
  for (const Caches* caches : {&train_caches_, &val_caches_})
    for (const auto& cache : *caches) bytes += cache->mapped_bytes();
  return bytes;
}

}  // namespace strata
