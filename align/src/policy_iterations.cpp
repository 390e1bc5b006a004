#include <strata/align/policy_iterations.h>

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include <strata/config/train_config.h>
#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>
#include <strata/align/advantages.h>
#include <strata/align/rollout_file.h>
#include <strata/align/sample_rollouts.h>
#include <strata/config/objective.h>

#include "kl_estimate.h"

namespace strata {
namespace {

constexpr const char* kKlCoefficient = "align.kl_coef.now";

RolloutShape shape_of(const TrainConfig& config, const PolicySizes& sizes) {
  return {.steps = sizes.mini_batches,
          .micro_batches = sizes.micro_batches,
          .rows = config.train.micro_batch,
          .seq = config.model.seq,
          .counts_tokens = objective_of(config).has_critic || align_loss(config) == "dapo"};
}

Status check_finite(std::span<const float> values, const char* program) {
  for (const float value : values)
    if (!std::isfinite(value))
      return Status::error(Code::diverged,
                           str("program ", program, " says ", value, " of a token of an answer"));
  return {};
}

}  // namespace

PolicyIterations::PolicyIterations(const TrainConfig& config, const TrainingData& data)
    : config_(config),
      prompts_(*data.prompts()),
      tokenizer_(data.tokenizer()),
      sizes_(policy_sizes(config)),
      on_policy_(is_on_policy(config)),
      scores_answers_(strata::scores_answers(config)),
      batches_(shape_of(config, sizes_)),
      mixture_(data.mixture_batches(config.train.micro_batch)),
      kl_coef_(config.align.kl_coef),
      used_kl_coef_(kl_coef_) {
  programs_ = {kDecodeProgram};
  if (config.align.reward_model) programs_.push_back(kRewardProgram);
  if (scores_answers_) programs_.push_back(kLogProbsProgram);
  if (needs_reference_policy(config)) programs_.push_back(kReferenceProgram);
  if (objective_of(config).has_critic) programs_.push_back(kScoresProgram);
  programs_.push_back(kPolicyProgram);
  if (objective_of(config).has_critic) programs_.push_back(kCriticProgram);
}

Status PolicyIterations::expect_after(Engine& engine, std::string_view now, bool again) {
  const auto found = std::find(programs_.begin(), programs_.end(), now);
  STRATA_ASSERT(found != programs_.end(), "an iteration does not run the program ", now);
  next_.clear();
  if (now == kPolicyProgram && again && objective_of(config_).has_critic) next_.emplace_back(kCriticProgram);
  if (now == kCriticProgram && again) next_.emplace_back(kPolicyProgram);
  if (again) next_.push_back(now);
  next_.insert(next_.end(), found + 1, programs_.end());
  next_.insert(next_.end(), programs_.begin(), found + 1);
  return engine.expect(next_);
}

Result<std::unique_ptr<PolicyIterations>> PolicyIterations::create(const TrainConfig& config,
                                                                   const TrainingData& data) {
  std::unique_ptr<PolicyIterations> made(new PolicyIterations(config, data));
  for (const std::string& text : config.align.reward) {
    STRATA_TRY_ASSIGN(const RewardSpec spec, parse_reward(text));
    if (spec.kind == kModelReward) {
      made->model_weight_ = spec.weight;
      continue;
    }
    STRATA_TRY_ASSIGN(auto reward, create_reward(spec));
    made->rewards_.emplace_back(spec.weight, std::move(reward));
  }
  STRATA_TRY(made->check_rewards());
  return made;
}

// A prompt that a rule cannot reward is found now, and not when it is sampled.
Status PolicyIterations::check_rewards() const {
  std::vector<AnswerText> texts;
  for (std::size_t i = 0; i < prompts_.size(); ++i) texts.push_back(text_of(prompts_.prompt(i)));
  for (const auto& [weight, function] : rewards_) STRATA_TRY(function->check(texts));
  return {};
}

AnswerText PolicyIterations::text_of(const Prompt& prompt) {
  return {.prompt = prompt.messages.empty() ? std::string_view(prompt.text)
                                            : std::string_view(prompt.messages.back().content),
          .record = prompt.record,
          .answer = {}};
}

Status PolicyIterations::begin(Engine& engine, std::int64_t steps, const std::function<bool()>& stops) {
  const std::int64_t iteration = iteration_of(steps);
  const RolloutOptions options{
      .prompts = sizes_.prompts,
      .samples = sizes_.samples,
      .max_tokens = sizes_.max_tokens,
      .temperature = config_.align.temperature,
      .ends = tokenizer_.markers().ends,
      .limits = {.context = static_cast<std::int32_t>(sizes_.context()), .vocab = tokenizer_.vocab_size()},
      .seed = config_.train.seed};
  const auto seconds_since = [&](std::int64_t begin) {
    return static_cast<double>(clock_.now_ns() - begin) * 1e-9;
  };
  figures_ = {};
  iteration_ = -1;  // until everything is there
  STRATA_TRY(expect_after(engine, kDecodeProgram, true));
  const std::int64_t sampling = clock_.now_ns();
  STRATA_TRY_ASSIGN(std::vector<Rollout> rollouts,
                    sample_rollouts(engine, prompts_, options, iteration, stops));
  figures_.rollout_s = seconds_since(sampling);
  STRATA_TRY(batches_.set(std::move(rollouts)));
  const std::int64_t rewarding = clock_.now_ns();
  STRATA_TRY(reward(engine, stops));
  figures_.reward_s = seconds_since(rewarding);
  const std::int64_t scoring = clock_.now_ns();
  STRATA_TRY(score(engine));
  figures_.score_s = seconds_since(scoring);
  set_weights();
  if (objective_of(config_).has_critic)
    set_critic_advantages();
  else
    set_group_advantages();
  describe();
  if (!on_policy_) describe_policy();
  iteration_ = iteration;
  return {};
}

Result<AnswerText> PolicyIterations::text_of(const Rollout& rollout) const {
  AnswerText text = text_of(prompts_.prompt(rollout.prompt));
  STRATA_TRY_ASSIGN(text.answer, tokenizer_.decode(std::span(rollout.ids).subspan(rollout.n_prompt)));
  text.ended = rollout.stop >= 0;
  return text;
}

Result<PolicyIterations::Sample> PolicyIterations::sample(std::int64_t number) const {
  const std::vector<Rollout>& rollouts = batches_.rollouts();
  const Rollout& rollout = rollouts[static_cast<std::size_t>(number) % rollouts.size()];
  STRATA_TRY_ASSIGN(AnswerText text, text_of(rollout));
  return Sample{std::string(text.prompt), std::move(text.answer), rollout.reward};
}

Status PolicyIterations::reward(Engine& engine, const std::function<bool()>& stops) {
  std::vector<AnswerText> texts;
  std::vector<double> rewards(batches_.rollouts().size());
  for (const Rollout& rollout : batches_.rollouts()) {
    STRATA_TRY_ASSIGN(AnswerText text, text_of(rollout));
    texts.push_back(std::move(text));
  }
  for (const auto& [weight, function] : rewards_) STRATA_TRY(function->add(texts, weight, rewards, stops));
  if (config_.align.reward_model) STRATA_TRY(add_model_rewards(engine, rewards));
  for (std::size_t i = 0; i < rewards.size(); ++i) batches_.rollouts()[i].reward = rewards[i];
  return {};
}

// The score of each text's last token, which is no end of text: reward models are trained without it.
Status PolicyIterations::add_model_rewards(Engine& engine, std::span<double> rewards) {
  std::vector<double> scores(rewards.size());
  STRATA_TRY(for_each_micro_batch(engine, kRewardProgram, [&](std::int64_t k) {
    batches_.take_last(k, engine.output(kRewardProgram, "scores"), scores);
  }));
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    if (!std::isfinite(scores[i]))
      return Status::error(Code::diverged,
                           str("the reward model's score of answer ", i + 1, " is ", scores[i]));
    rewards[i] += model_weight_ * scores[i];
  }
  return {};
}

// Old log-probabilities are those of the rows that are trained later, so that the first ratio of each token
// is exactly 1: the sampler has them (contract C9), or a pass says so. A step that is the first of its
// answers, and the last, has them itself.
Status PolicyIterations::score(Engine& engine) {
  if (!on_policy_ && !scores_answers_) take_sampled();
  if (scores_answers_)
    STRATA_TRY(run_scores(engine, kLogProbsProgram, "log_probs", batches_.values(TokenValue::old_log_prob)));
  if (needs_reference_policy(config_))
    STRATA_TRY(run_scores(engine, kReferenceProgram, "log_probs", batches_.values(TokenValue::reference)));
  if (objective_of(config_).has_critic)
    STRATA_TRY(run_scores(engine, kScoresProgram, "scores", batches_.values(TokenValue::old_value)));
  return {};
}

void PolicyIterations::take_sampled() {
  for (std::size_t i = 0; i < batches_.rollouts().size(); ++i) {
    const Rollout& rollout = batches_.rollouts()[i];
    std::ranges::copy(rollout.log_probs, batches_.values_of(TokenValue::old_log_prob, i).begin());
    std::ranges::copy(rollout.entropies, batches_.values_of(TokenValue::entropy, i).begin());
  }
}

Status PolicyIterations::run_scores(Engine& engine, const char* program, const char* output,
                                    std::vector<float>& into) {
  STRATA_TRY(for_each_micro_batch(engine, program, [&](std::int64_t k) {
    batches_.take(k, engine.output(program, output), into);
    if (const auto entropies = engine.output(program, "entropies"); !entropies.empty())
      batches_.take(k, entropies, batches_.values(TokenValue::entropy));
  }));
  return check_finite(into, program);
}

// Takes the log-probabilities that a step has computed of micro-batch `k` of its own.
void PolicyIterations::take_log_probs(const Engine& engine, std::int64_t first, std::int64_t k) {
  const auto of = static_cast<std::int32_t>(k);
  batches_.take(first + k, engine.output(kPolicyProgram, "log_probs", of),
                batches_.values(TokenValue::old_log_prob));
  batches_.take(first + k, engine.output(kPolicyProgram, "entropies", of),
                batches_.values(TokenValue::entropy));
}

// Runs a program on what the answers were packed into.
Status PolicyIterations::for_each_micro_batch(Engine& engine, const char* program,
                                              const std::function<void(std::int64_t)>& take) {
  const std::int64_t m = sizes_.micro_batches, end = batches_.micro_batches_of_epoch();
  for (std::int64_t first = 0; first < end; first += m)
    for (std::int64_t k = batches_.n_empty(first, m); k < m; ++k) {
      STRATA_TRY(expect_after(engine, program, first + k + 1 < end));
      STRATA_TRY(engine.forward(program, batches_, first + k));
      take(first + k);
    }
  return {};
}

// The losses of GRPO, Dr. GRPO and DAPO differ in nothing else.
void PolicyIterations::set_weights() {
  const std::string_view loss = align_loss(config_);  // empty for PPO
  for (std::size_t i = 0; i < batches_.rollouts().size(); ++i) {
    const std::span<float> weights = batches_.values_of(TokenValue::weight, i);
    const double weight = loss == "grpo"      ? 1 / static_cast<double>(weights.size())
                          : loss == "dr_grpo" ? 1 / static_cast<double>(sizes_.max_tokens)
                                              : 1;
    std::fill(weights.begin(), weights.end(), static_cast<float>(weight));
  }
}

void PolicyIterations::set_group_advantages() {
  std::vector<double> rewards, advantages(batches_.rollouts().size());
  for (const Rollout& rollout : batches_.rollouts()) rewards.push_back(rollout.reward);
  group_advantages(rewards, static_cast<std::size_t>(sizes_.samples), align_loss(config_) != "dr_grpo",
                   advantages);
  for (std::size_t i = 0; i < advantages.size(); ++i) {
    const std::span<float> of_tokens = batches_.values_of(TokenValue::advantage, i);
    std::fill(of_tokens.begin(), of_tokens.end(), static_cast<float>(advantages[i]));
  }
}

// The reward comes with the last token; before it is the penalty for leaving the reference.
void PolicyIterations::set_critic_advantages() {
  const bool k3 = kl_estimator(config_) == kernels::KlEstimator::k3, has_kl = needs_reference_policy(config_);
  std::vector<double> advantages(batches_.n_tokens()), returns(batches_.n_tokens()), rewards;
  double kl = 0;
  std::size_t first = 0;
  for (std::size_t i = 0; i < batches_.rollouts().size(); ++i) {
    const std::span<const float> old = batches_.values_of(TokenValue::old_log_prob, i),
                                 reference = batches_.values_of(TokenValue::reference, i);
    rewards.assign(old.size(), 0.0);
    for (std::size_t t = 0; t < old.size() && has_kl; ++t) {
      const double estimate = kl_estimate(old[t], reference[t], k3);
      kl += estimate;
      rewards[t] -= kl_coef_ * estimate;
    }
    rewards.back() += batches_.rollouts()[i].reward;
    generalized_advantages(
        rewards, batches_.values_of(TokenValue::old_value, i), {config_.align.gamma, config_.align.lambda},
        std::span(advantages).subspan(first, old.size()), std::span(returns).subspan(first, old.size()));
    first += old.size();
  }
  if (config_.align.whiten) whiten(advantages);
  const auto narrow = [](double value) { return static_cast<float>(value); };
  std::transform(advantages.begin(), advantages.end(), batches_.values(TokenValue::advantage).begin(),
                 narrow);
  std::transform(returns.begin(), returns.end(), batches_.values(TokenValue::value_target).begin(), narrow);
  const auto n = static_cast<double>(batches_.rollouts().size());
  used_kl_coef_ = kl_coef_;
  kl_coef_ = KlControl{config_.align.kl_target, config_.align.kl_horizon}.after(kl_coef_, kl / n, n);
}

Status PolicyIterations::train(Engine& engine, double lr, StepReport& report) {
  STRATA_TRY(expect_after(engine, kPolicyProgram, (engine.steps() + 1) % sizes_.steps() != 0));
  const std::array<BatchSource*, 2> sources = {&batches_, mixture_.get()};
  return engine.train_step(kPolicyTrainee, std::span(sources).first(mixture_ == nullptr ? 1 : 2), lr, report);
}

Status PolicyIterations::after_step(Engine& engine, double critic_lr, MetricsLine& line, StepReport& critic) {
  const std::int64_t m = sizes_.micro_batches;
  const std::int64_t first = (line.step - 1) * m;
  double weights = 0, clipped = 0, moved = 0;
  for (std::int64_t k = batches_.n_empty(first, m); k < m; ++k) {
    const std::span<const float> stats = engine.output(kPolicyProgram, "stats", static_cast<std::int32_t>(k));
    if (stats.size() != 6) continue;
    if (on_policy_) take_log_probs(engine, first, k);
    if ((line.step - 1) % sizes_.steps() == 0)
      figures_.sampler_mismatch += static_cast<double>(batches_.count_other_bits(
          first + k, engine.output(kPolicyProgram, "log_probs", static_cast<std::int32_t>(k))));
    weights += static_cast<double>(stats[0]);
    clipped += static_cast<double>(stats[1]);
    moved += static_cast<double>(stats[2]);
    figures_.ratio_max = std::max(figures_.ratio_max, static_cast<double>(stats[5]));
  }
  if (on_policy_) describe_policy();
  line.policy = figures_;
  line.policy.clip_fraction = weights > 0 ? clipped / weights : 0;
  line.policy.old_kl = weights > 0 ? moved / weights : 0;
  figures_.ratio_max = figures_.sampler_mismatch = figures_.rollout_s = figures_.reward_s = figures_.score_s =
      0;  // they are of one step
  if (!objective_of(config_).has_critic) return {};
  STRATA_TRY(expect_after(engine, kCriticProgram, line.step % sizes_.steps() != 0));
  BatchSource* const source = &batches_;
  STRATA_TRY(engine.train_step(kCriticTrainee, {&source, 1}, critic_lr, critic));
  line.policy.value_loss = static_cast<double>(critic.loss);
  line.policy.critic_grad_norm = critic.grad_norm;
  line.policy.critic_s = critic.seconds;
  return {};
}

std::string PolicyIterations::answers(std::int64_t steps) const {
  const bool is_over = steps % sizes_.steps() == 0 || iteration_ < 0;
  return is_over ? std::string() : rollouts_bytes(iteration_, batches_);
}

std::map<std::string, std::string> PolicyIterations::state() const {
  if (config_.align.kl_target <= 0) return {};
  return {{kKlCoefficient, fmt::format("{:a} {:a}", kl_coef_, used_kl_coef_)}};
}

Status PolicyIterations::resume(std::int64_t steps, const std::map<std::string, std::string>& state,
                                std::string_view answers) {
  if (const auto found = state.find(kKlCoefficient); found != state.end()) {
    char* end = nullptr;
    kl_coef_ = std::strtod(found->second.c_str(), &end);
    used_kl_coef_ = std::strtod(end, nullptr);
    if (!(kl_coef_ > 0 && used_kl_coef_ > 0 && std::isfinite(kl_coef_)))
      return Status::error(Code::invalid,
                           str("the checkpoint's ", kKlCoefficient, " is '", found->second, "'"));
  }
  if (steps % sizes_.steps() == 0) return {};
  if (answers.empty())
    return Status::error(Code::corrupt,
                         str("the checkpoint of step ", steps, " lacks the answers of iteration ",
                             iteration_of(steps) + 1, ", in which it was saved"));
  STRATA_TRY(set_rollouts(answers, iteration_of(steps), batches_));
  iteration_ = iteration_of(steps);
  describe();
  describe_policy();  // an iteration of one step is never gone on with
  return {};
}

}  // namespace strata
