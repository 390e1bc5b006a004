#pragma once

#include <map>
#include <string>
#include <string_view>

#include <strata/batches/training_data.h>

namespace strata {

struct TrainConfig;

/// The GEMM implementation of a run. It may differ on another machine, and bits of the results then differ
/// too.
inline constexpr std::string_view kGemmImplementation = "cpu.bf16_matmul";
/// The only other entry of run_identity() that may differ: the number of steps of the learning rate schedule.
inline constexpr std::string_view kScheduleSteps = "train.steps";
/// The values, by name, that must be equal for a resumed run to be the same run. They are stored in
/// checkpoints.
std::map<std::string, std::string> run_identity(const TrainConfig& config, const TrainingData& training_data);
/// Compares two identities. Errors: `invalid`, with all differences.
Status check_identity(const std::map<std::string, std::string>& saved,
                      const std::map<std::string, std::string>& now);

}  // namespace strata
