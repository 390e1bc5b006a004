#pragma once

#include <strata/cpuopt/schedule.h>
#include <strata/config/train_config.h>

namespace strata {

/// The learning rates of all steps of a run.
cpuopt::LrSchedule lr_schedule(const TrainConfig::Optim& optim, std::int64_t steps);

}  // namespace strata
