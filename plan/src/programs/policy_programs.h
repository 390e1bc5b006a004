#pragma once

#include <strata/engine/program_set.h>
#include <strata/plan/activation_choices.h>

namespace strata {
struct TrainConfig;
}  // namespace strata

namespace strata::detail {

/// The programs of a run that samples answers: those that continue sequences, those that score tokens, and
/// those that train, all over one set of parameters. The reference and the critic share what is frozen.
Result<ProgramSet> record_policy_programs(const TrainConfig& config, const ActivationChoice& activations);

}  // namespace strata::detail
