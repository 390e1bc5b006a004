#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <strata/engine/engine.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/io/io.h>
#include <strata/config/objective.h>
#include <strata/batches/prompt_set.h>
#include <strata/text/rewards/rewards.h>
#include <strata/align/rollout_batches.h>
#include <strata/train/run_folder.h>
#include <strata/batches/training_data.h>

namespace strata {

struct TrainConfig;

/// The iterations of a run that learns from answers that it samples: in each, answers are sampled, rewarded
/// and scored by the models that the loss needs, and then trained on for PolicySizes::steps() steps.
/// Everything is a function of the run's seed, states and iteration, wherever the bytes lie. Not thread-safe.
class PolicyIterations {
 public:
  /// `config` and `data` outlive it. Errors: those of create_reward().
  static Result<std::unique_ptr<PolicyIterations>> create(const TrainConfig& config,
                                                          const TrainingData& data);

  /// Whether the step after `steps` needs new answers.
  bool is_due(std::int64_t steps) const noexcept { return iteration_of(steps) != iteration_; }
  /// Samples the answers that the step after `steps` needs, which begins an iteration, and scores them.
  /// Errors: `cancelled` once `stops` returns true; those of sampling, of the rewards and of the engine.
  Status begin(Engine& engine, std::int64_t steps, const std::function<bool()>& stops);
  /// Tokens of the iteration for each of an epoch's steps, prompts included.
  double mean_tokens_of_step() const {
    return static_cast<double>(batches_.n_inputs()) / static_cast<double>(sizes_.mini_batches);
  }
  /// The batches that the steps train on.
  RolloutBatches& batches() noexcept { return batches_; }
  /// Does a step of the policy, with the data that it is mixed with.
  Status train(Engine& engine, double lr, StepReport& report);
  /// Trains the critic, if there is one, after a step of the policy, and adds what is known of the step and
  /// its iteration to its line.
  Status after_step(Engine& engine, double critic_lr, MetricsLine& line, StepReport& critic);

  struct Sample {
    std::string prompt, answer;
    double reward = 0;
  };
  /// An answer of the present iteration, another one for each `number`. Errors: those of decoding.
  Result<Sample> sample(std::int64_t number) const;

  /// A line of JSON for each answer of the present iteration, which was sampled after `steps`: "step" (the
  /// next), "prompt", "answer", "ended", "reward", "ids" (of both, and of the token that ended it),
  /// "n_prompt" and "log_probs" (of each id after the prompt's). Errors: those of decoding.
  Result<std::string> lines(std::int64_t steps) const;

  /// The answers of an iteration that is not over, which a checkpoint after `steps` needs besides the states;
  /// empty if it is over.
  std::string answers(std::int64_t steps) const;
  std::map<std::string, std::string> state() const;
  /// Goes on from a checkpoint, with the answers that it has. Errors: `corrupt` if it lacks some; those of
  /// set_rollouts(); `invalid` for a state without a number.
  Status resume(std::int64_t steps, const std::map<std::string, std::string>& state,
                std::string_view answers);

 private:
  PolicyIterations(const TrainConfig& config, const TrainingData& data);
  std::int64_t iteration_of(std::int64_t steps) const noexcept { return steps / sizes_.steps(); }
  Status check_rewards() const;
  static AnswerText text_of(const Prompt& prompt);
  Result<AnswerText> text_of(const Rollout& rollout) const;
  Status reward(Engine& engine, const std::function<bool()>& stops);
  Status add_model_rewards(Engine& engine, std::span<double> rewards);
  Status for_each_micro_batch(Engine& engine, const char* program,
                              const std::function<void(std::int64_t)>& take);
  Status score(Engine& engine);
  Status run_scores(Engine& engine, const char* program, const char* output, std::vector<float>& into);
  /// Tells the engine what runs after the passes of program `now`, which follow once more if `again`.
  Status expect_after(Engine& engine, std::string_view now, bool again);
  void set_weights();
  void set_group_advantages();
  void set_critic_advantages();
  void take_log_probs(const Engine& engine, std::int64_t first, std::int64_t k);
  void take_sampled();
  void describe();
  void describe_policy();

  const TrainConfig& config_;
  const PromptSet& prompts_;
  const Tokenizer& tokenizer_;
  const PolicySizes sizes_;
  const bool on_policy_, scores_answers_;
  std::vector<std::pair<double, std::unique_ptr<RewardFunction>>> rewards_;
  double model_weight_ = 0;  // the weight of the reward model's score
  RolloutBatches batches_;
  std::vector<std::string_view> programs_;       // in the order in which an iteration runs them
  std::vector<std::string_view> next_;           // the programs that are expected
  const std::unique_ptr<MicroBatches> mixture_;  // null if there is none
  SteadyClock clock_;
  std::int64_t iteration_ = -1;
  double kl_coef_, used_kl_coef_;  // the coefficients of the next iteration, and of this one
  PolicyFigures figures_;          // the figures of the iteration
};

}  // namespace strata
