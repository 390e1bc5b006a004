#pragma once

#include <string>

#include <strata/engine/run_plan.h>

namespace strata {

/// Lines that say which tensors ranks share that share the model, and what they exchange in a micro-batch;
/// empty if none do.
std::string split_lines(const RunPlan& plan);

}  // namespace strata
