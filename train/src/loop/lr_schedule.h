#pragma once

#include <strata/cpuopt/schedule.h>
#include <strata/train/train_config.h>

namespace strata {

/// The learning rates of all steps of a run.
cpuopt::LrSchedule lr_schedule(const TrainConfig::Optim& optim, std::int64_t steps);

}  // namespace strata
