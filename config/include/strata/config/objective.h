#pragma once

#include <cstdint>

#include <strata/config/objectives.h>
#include <strata/kernels/align/loss_options.h>
#include <strata/model/align/pairs.h>
#include <strata/model/align/policy.h>
#include <strata/text/documents.h>
#include <strata/text/pair_dataset.h>
#include <strata/text/tokenizer.h>

// What the objectives of a run apart from the next token are made of: programs, losses, sizes.

namespace strata {

struct TrainConfig;

/// The name of its loss, of those that align.loss has for the objective; empty if it has none.
std::string_view align_loss(const TrainConfig& config);
/// Which records its data consists of.
RecordUse record_use(const TrainConfig& config);

/// The programs of a run that compares pairs, and how its data are packed.
PairProgram pair_program(const TrainConfig& config);
PairOptions pair_options(const TrainConfig& config, SampleOrder order, const Tokenizer& tokenizer);

/// The program of a run with a reference that computes what its pairs or answers are compared with
/// (ProgramRole::forward).
inline constexpr const char* kReferenceProgram = "reference";

/// How much of what an iteration of such a run has.
struct PolicySizes {
  std::int64_t prompts = 0, samples = 0;  ///< answers to each prompt
  std::int64_t mini_batches = 0;          ///< steps of an epoch
  std::int64_t epochs = 0;
  std::int64_t max_prompt = 0, max_tokens = 0;  ///< tokens of a prompt, and of an answer
  /// micro-batches of a step at most, if all texts are as long as they may be.
  std::int64_t micro_batches = 0;
  std::int64_t slots = 0;  ///< answers that are continued at the same time
  std::int64_t answers() const noexcept { return prompts * samples; }
  std::int64_t steps() const noexcept { return mini_batches * epochs; }
  std::int64_t context() const noexcept { return max_prompt + max_tokens; }
};
PolicySizes policy_sizes(const TrainConfig& config);
/// Whether each answer is trained on once, by the policy that sampled it, and nothing has to be known of that
/// policy before: an iteration of one step, without a critic.
bool is_on_policy(const TrainConfig& config);
/// Whether a pass over the packed answers says what the ratios are formed with; the sampler has said it else.
bool scores_answers(const TrainConfig& config);
PolicyProgram policy_program(const TrainConfig& config);
kernels::PolicyLossOptions policy_loss_options(const TrainConfig& config);
kernels::KlEstimator kl_estimator(const TrainConfig& config);
kernels::ValueLossOptions value_loss_options(const TrainConfig& config);
/// Whether the run needs log-probabilities under the policy that it starts from.
bool needs_reference_policy(const TrainConfig& config);

/// Further programs of such a run: log-probabilities of the policy, its loss (the one that trains), the
/// critic's scores and its loss.
inline constexpr const char* kPolicyProgram = "train";
inline constexpr const char* kLogProbsProgram = "log_probs";
inline constexpr const char* kScoresProgram = "values";
inline constexpr const char* kMixtureProgram = "mixture";
inline constexpr const char* kCriticProgram = "critic";
inline constexpr const char* kRewardProgram = "reward";
inline constexpr const char* kDecodeProgram = "decode";
/// The trainees.
inline constexpr const char* kPolicyTrainee = "policy";
inline constexpr const char* kCriticTrainee = "critic";
/// Before the names of parameters that are not the policy's.
inline constexpr const char* kReferencePrefix = "reference.";
inline constexpr const char* kCriticPrefix = "critic.";

}  // namespace strata
