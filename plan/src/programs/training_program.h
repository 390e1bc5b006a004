#pragma once

#include <span>

#include <strata/plan/activation_choices.h>

namespace strata {
struct TrainConfig;
}  // namespace strata

namespace strata::detail {

/// Makes the parameters of the run's adapters or subspaces the trainable ones of a program.
Result<Program> with_trainable(Program program, const TrainConfig& config,
                               std::span<const LoraGroup> subspaces);
/// The program with the run's blocks of experts, see split_experts(). Idempotent.
Program with_expert_blocks(Program program, const TrainConfig& config);
/// The program of a micro-batch, which says what is trained, with its derivative.
Result<Program> record_derivative(const TrainConfig& config, const ActivationChoice& activations,
                                  Program forward);
/// The training program with everything that the configuration chooses for it.
Result<Program> record_training(const TrainConfig& config, const ActivationChoice& activations, Program train,
                                std::span<const LoraGroup> subspaces);

}  // namespace strata::detail
