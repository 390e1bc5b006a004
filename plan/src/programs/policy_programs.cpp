#include "programs/policy_programs.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <strata/config/reward_model.h>
#include <strata/config/train_config.h>
#include <strata/model/adapter/adapter.h>
#include <strata/model/adapter/weight_parts.h>
#include <strata/model/align/pairs.h>
#include <strata/config/objective.h>
#include <strata/config/model_choice.h>
#include <strata/model/decoder.h>
#include <strata/plan/record_programs.h>
#include <strata/plan/activation_choices.h>

#include "programs/training_program.h"

namespace strata::detail {
namespace {

constexpr std::int64_t kPrefillRows = 128;  // tokens of a pass over prompts; more is hardly faster on CPUs

/// Records the programs of one configuration.
class PolicyRecorder {
 public:
  PolicyRecorder(const TrainConfig& config, const ActivationChoice& activations)
      : config_(config),
        activations_(activations),
        decoder_(decoder_config(config)),
        compute_(compute_dtype(config)),
        policy_(policy_program(config)) {}

  Result<ProgramSet> record() {
    STRATA_TRY_ASSIGN(const Program loss, of_policy(record_policy_loss(
                                              decoder_, policy_, policy_loss_options(config_), compute_)));
    STRATA_TRY(add_training(kPolicyProgram, kPolicyTrainee, loss));
    if (!config_.data.mixture.empty()) STRATA_TRY(add_mixture());
    if (scores_answers(config_))
      STRATA_TRY(
          add_forward(kLogProbsProgram, of_policy(record_log_probs(decoder_, policy_, true, compute_))));
    if (needs_reference_policy(config_)) STRATA_TRY(add_reference());
    if (objective_of(config_).has_critic) STRATA_TRY(add_critic());
    if (config_.align.reward_model) STRATA_TRY(add_reward(*config_.align.reward_model));
    STRATA_TRY(add_sampling());
    return std::move(set_);
  }

 private:
  /// A program of the policy, with its adapter, and what is trained of it.
  Result<Program> of_policy(Result<Program> program) const {
    if (!program.has_value()) return program;
    STRATA_TRY_ASSIGN(Program adapted, with_adapters(*std::move(program), config_, decoder_));
    return with_trainable(std::move(adapted), config_, {});
  }

  /// The same of the critic: what is trained is its own, and begins as that of the policy.
  Result<Program> of_critic(Result<Program> program) const {
    constexpr std::array<std::string_view, 1> kFresh = {kScoreWeight};
    STRATA_TRY_ASSIGN(Program made, of_policy(std::move(program)));
    for (ParamInfo& param : made.params)
      if (param.name == kScoreWeight) param.trainable = true;
    return copy_trainable(std::move(made), kCriticPrefix, kFresh);
  }

  Status add_forward(const char* name, Result<Program> program, ProgramRole role = ProgramRole::forward) {
    if (!program.has_value()) return program.status();
    set_.add({name, role, specialize_for_backend(*std::move(program), config_)});
    return {};
  }

  Status add_training(const char* name, const char* trainee, const Program& loss,
                      std::int32_t micro_batches = 0, double weight = 1) {
    STRATA_TRY_ASSIGN(Program train, record_derivative(config_, activations_, loss));
    STRATA_TRY_ASSIGN(train, record_training(config_, activations_, std::move(train), {}));
    set_.add({.name = name,
              .role = ProgramRole::train,
              .program = std::move(train),
              .trainee = trainee,
              .micro_batches = micro_batches,
              .weight = weight});
    return {};
  }

  // Texts that the policy learns in the same steps.
  Status add_mixture() {
    STRATA_TRY_ASSIGN(const Program loss,
                      of_policy(record_decoder(decoder_, config_.train.micro_batch, DecoderHead::loss,
                                               DecoderRows::packed, compute_)));
    return add_training(kMixtureProgram, kPolicyTrainee, loss, config_.align.mixture_batches,
                        config_.align.mixture_weight);
  }

  // The policy as it was when the run began.
  Status add_reference() {
    STRATA_TRY_ASSIGN(Program reference, of_policy(record_log_probs(decoder_, policy_, false, compute_)));
    return add_forward(kReferenceProgram,
                       freeze_trainable(copy_trainable(std::move(reference), kReferencePrefix)));
  }

  Status add_critic() {
    const std::int64_t rows = config_.train.micro_batch;
    STRATA_TRY_ASSIGN(const Program loss,
                      of_critic(record_value_loss(decoder_, rows, value_loss_options(config_), compute_)));
    STRATA_TRY(add_training(kCriticProgram, kCriticTrainee, loss));
    return add_forward(kScoresProgram, of_critic(record_token_scores(decoder_, rows, compute_)));
  }

  // An adapter shares its base with the policy; any other model has parameters of its own.
  Status add_reward(const RewardModel& model) {
    DecoderConfig decoder = model.decoder;
    decoder.seq = decoder_.seq;
    decoder.scores = false;  // the score is recorded here
    STRATA_TRY_ASSIGN(Program program, record_token_scores(decoder, config_.train.micro_batch, compute_));
    for (ParamInfo& param : program.params) param.trainable = false;
    std::vector<std::string> names;
    if (model.adapter) {
      for (const ParamInfo& param : program.params)
        if (param.name != kScoreWeight) names.push_back(param.name);
      STRATA_TRY_ASSIGN(program, add_adapter(std::move(program), decoder, *model.adapter));
      STRATA_TRY_ASSIGN(program, quantize_base(std::move(program)));
    }
    const std::vector<std::string_view> shared(names.begin(), names.end());
    for (ParamInfo& param : program.params) param.trainable = false;
    return add_forward(kRewardProgram, prefix_parameters(std::move(program), kRewardPrefix, shared));
  }

  Result<Program> quantize_base(Program program) const {
    const kernels::WeightFormat format = base_format(config_);
    if (format == kernels::WeightFormat::full) return program;
    return quantize_weights(std::move(program), format, weight_parts(decoder_));
  }

  // Programs that continue sequences: many tokens of prompts, and then one of each answer.
  Status add_sampling() {
    const PolicySizes sizes = policy_sizes(config_);
    CacheShape shape{sizes.slots, sizes.slots, sizes.context(), sizes.slots};
    STRATA_TRY(add_forward(kDecodeProgram, of_policy(record_cached_decoder(decoder_, shape, compute_)),
                           ProgramRole::decode));
    shape.rows = std::max(kPrefillRows, 2 * sizes.slots);
    return add_forward("prefill", of_policy(record_cached_decoder(decoder_, shape, compute_)),
                       ProgramRole::prefill);
  }

  const TrainConfig& config_;
  const ActivationChoice& activations_;
  const DecoderConfig decoder_;
  const DType compute_;
  const PolicyProgram policy_;
  ProgramSet set_;
};

}  // namespace

Result<ProgramSet> record_policy_programs(const TrainConfig& config, const ActivationChoice& activations) {
  return PolicyRecorder(config, activations).record();
}

}  // namespace strata::detail
