#pragma once

#include <map>
#include <string>
#include <string_view>

#include "training/training_data.h"

namespace strata::cli {

/// By what a run multiplies: another machine's may differ, and then so do bits.
inline constexpr std::string_view kGemmImplementation = "cpu.bf16_matmul";
/// The one other entry of run_identity() that may differ: the steps over which the learning rate falls.
inline constexpr std::string_view kScheduleSteps = "train.steps";
/// What must be equal for a resumed run to be the same run, by name; goes into checkpoints.
std::map<std::string, std::string> run_identity(const TrainConfig& config, const TrainingData& training_data);
/// All differences at once. Errors: `invalid`.
Status check_identity(const std::map<std::string, std::string>& saved,
                      const std::map<std::string, std::string>& now);

}  // namespace strata::cli
