#pragma once

#include <strata/cpuopt/schedule.h>

namespace strata {

struct TrainConfig;

/// The learning rates of all steps of a run, of which `lr` is the largest.
cpuopt::LrSchedule lr_schedule(const TrainConfig& config, double lr);

}  // namespace strata
