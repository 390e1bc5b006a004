#pragma once

#include <strata/config/train_config.h>
#include <strata/plan/activation_choices.h>

namespace strata::detail {

/// The programs of a run that samples answers: those that continue sequences, those that score tokens, and
/// those that train, all over one set of parameters. The reference and the critic share what is frozen.
Result<ProgramSet> record_policy_programs(const TrainConfig& config, const ActivationChoice& activations);

}  // namespace strata::detail
