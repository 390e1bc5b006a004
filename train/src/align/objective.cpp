#include <strata/train/align/objective.h>

#include <algorithm>

namespace strata {
namespace {

// Pairs shorter than this on average leave a micro-batch with less than it has room for.
constexpr std::int64_t kTokensPerPair = 32;

std::int32_t max_pairs(const TrainConfig& config) {
  if (config.align.max_pairs) return *config.align.max_pairs;
  const std::int64_t tokens = std::int64_t{config.train.micro_batch} * config.model.seq;
  return static_cast<std::int32_t>(std::max<std::int64_t>(1, tokens / kTokensPerPair));
}

}  // namespace

bool is_reward_model(const TrainConfig& config) { return config.train.objective == "reward"; }
bool has_reference(const TrainConfig& config) { return config.train.objective == "dpo"; }
bool compares_pairs(const TrainConfig& config) { return is_reward_model(config) || has_reference(config); }

RecordUse record_use(const TrainConfig& config) {
  return compares_pairs(config) ? RecordUse::pairs : RecordUse::texts;
}

PairProgram pair_program(const TrainConfig& config) {
  PairProgram pairs;
  pairs.objective = is_reward_model(config)      ? PairObjective::reward
                    : config.align.loss == "ipo" ? PairObjective::ipo
                                                 : PairObjective::dpo;
  pairs.batch = config.train.micro_batch;
  pairs.max_pairs = max_pairs(config);
  pairs.beta = static_cast<float>(config.align.beta);
  pairs.label_smoothing = static_cast<float>(config.align.label_smoothing);
  return pairs;
}

PairOptions pair_options(const TrainConfig& config, SampleOrder order, const Tokenizer& tokenizer) {
  return {.seq = config.model.seq,
          .rows = config.train.micro_batch,
          .max_pairs = max_pairs(config),
          .segments =
              is_reward_model(config) ? PairOptions::Segments::last_token : PairOptions::Segments::answers,
          .end_of_text = tokenizer.end_of_text(),
          .order = order,
          .seed = config.train.seed};
}

}  // namespace strata
