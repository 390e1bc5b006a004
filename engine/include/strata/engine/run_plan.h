#pragma once

#include <string>
#include <vector>

#include <strata/engine/lowering.h>
#include <strata/engine/program_set.h>
#include <strata/session/state_plan.h>

namespace strata {

/// A program of the run, bound to the run's chunk layout.
struct PlannedProgram {
  std::string name;
  ProgramRole role = ProgramRole::train;
  LoweredProgram program;
};

/// Everything that a run will hold, proven by running the real scheduler over the null backend: the states,
/// and the programs that compute with them.
struct RunPlan : StatePlan {
  std::vector<PlannedProgram> programs;
  std::vector<Init> init_of_tensor;
  std::vector<kernels::QuantizedMatrix> quantized_of_tensor;  ///< of format `full`: not quantized

  /// The first program of that role; an empty one if there is none.
  const LoweredProgram& of(ProgramRole role) const noexcept;
};

}  // namespace strata
