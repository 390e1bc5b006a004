#pragma once

#include <strata/cpuopt/optimizer_facts.h>

namespace strata {

struct TrainConfig;

/// The optimizer that updates parameters in the run: GaLore is AdamW on other parameters. The schema knows no
/// other names.
const cpuopt::OptimizerFacts& chosen_optimizer(const TrainConfig& config) noexcept;

}  // namespace strata
