#pragma once

#include <string>

#include <strata/engine/run_plan.h>

namespace strata {

struct TrainConfig;

/// Lines that say which tensors ranks share that share the model, what they exchange in a micro-batch, or in
/// a step of a pipeline, and how that pipeline runs; empty if none do.
std::string split_lines(const TrainConfig& c, const RunPlan& plan);

}  // namespace strata
