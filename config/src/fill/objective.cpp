#include <strata/config/objective.h>

#include <algorithm>

#include <strata/config/train_config.h>

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

PolicySizes policy_sizes(const TrainConfig& config) {
  constexpr std::int64_t kMostSlots = 32;  // more use memory for little speed where a pass is bound by GEMMs
  const TrainConfig::Align& align = config.align;
  PolicySizes sizes{.prompts = align.prompts,
                    .samples = align.samples,
                    .mini_batches = align.mini_batches,
                    .epochs = align.epochs,
                    .max_tokens = align.max_tokens};
  sizes.max_prompt = align.max_prompt ? *align.max_prompt : std::max(1, config.model.seq - align.max_tokens);
  sizes.slots = align.slots ? *align.slots : std::min(kMostSlots, sizes.answers());
  const std::int64_t share = (sizes.answers() + sizes.mini_batches - 1) / sizes.mini_batches,
                     of_row = std::max<std::int64_t>(1, config.model.seq / sizes.context()),
                     of_micro_batch = of_row * config.train.micro_batch;
  sizes.micro_batches = (share + of_micro_batch - 1) / of_micro_batch;
  return sizes;
}

bool is_on_policy(const TrainConfig& config) {
  return policy_sizes(config).steps() == 1 && !objective_of(config).has_critic;
}

bool scores_answers(const TrainConfig& config) {
  return !is_on_policy(config) && config.align.old_log_probs != "sampler";
}

PolicyProgram policy_program(const TrainConfig& config) {
  return {.batch = config.train.micro_batch,
          .temperature = static_cast<float>(config.align.temperature),
          .on_policy = is_on_policy(config)};
}

kernels::PolicyLossOptions policy_loss_options(const TrainConfig& config) {
  const TrainConfig::Align& align = config.align;
  kernels::PolicyLossOptions options;
  options.clip_low = static_cast<float>(align.clip);
  options.clip_high = static_cast<float>(align.clip_high.value_or(align.clip));
  // PPO has its penalty in the rewards.
  options.kl_coef = objective_of(config).has_critic ? 0.0f : static_cast<float>(align.kl_coef);
  options.kl = kl_estimator(config);
  return options;
}

kernels::KlEstimator kl_estimator(const TrainConfig& config) {
  const bool is_k1 =
      config.align.kl == "k1" || (config.align.kl == "auto" && objective_of(config).has_critic);
  return is_k1 ? kernels::KlEstimator::k1 : kernels::KlEstimator::k3;
}

kernels::ValueLossOptions value_loss_options(const TrainConfig& config) {
  return {.clip = static_cast<float>(config.align.value_clip)};
}

bool needs_reference_policy(const TrainConfig& config) {
  return objective_of(config).data == RunData::prompts && config.align.kl_coef > 0;
}

std::string_view align_loss(const TrainConfig& config) {
  if (config.align.loss != "auto") return config.align.loss;
  const auto losses = objective_of(config).losses;
  return losses.empty() ? std::string_view() : losses.front();
}

RecordUse record_use(const TrainConfig& config) {
  return objective_of(config).data == RunData::pairs ? RecordUse::pairs : RecordUse::texts;
}

PairProgram pair_program(const TrainConfig& config) {
  PairProgram pairs;
  pairs.objective = objective_of(config).scores   ? PairObjective::reward
                    : align_loss(config) == "ipo" ? PairObjective::ipo
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
          .segments = objective_of(config).scores ? PairOptions::Segments::last_token
                                                  : PairOptions::Segments::answers,
          .end_of_text = tokenizer.markers().end,
          .order = order,
          .seed = config.train.seed};
}

}  // namespace strata
