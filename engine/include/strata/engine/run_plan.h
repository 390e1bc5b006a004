#pragma once

#include <cstdint>
#include <string>
#include <string_view>
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

/// The passes of a trainee's step: those of each of its programs, one after the other.
struct PlannedStep {
  struct Part {
    std::size_t program = 0;  ///< index into RunPlan::programs
    std::int32_t passes = 1;
    std::int32_t micro_batches = 1;  ///< the micro-batches of all ranks together
    double weight = 1;
  };
  std::string trainee;
  std::vector<Part> parts;

  std::int32_t micro_batches() const noexcept {
    std::int32_t n = 0;
    for (const Part& part : parts) n += part.micro_batches;
    return n;
  }
};

/// Everything that a run will hold, proven by running the real scheduler over the null backend: the states,
/// and the programs that compute with them.
struct RunPlan : StatePlan {
  std::vector<PlannedProgram> programs;
  std::vector<PlannedStep> steps;  ///< the step of each trainee; none if nothing is trained
  std::int32_t snapshots = 0;      ///< each sequence has so many, see ProgramSet::set_snapshots()
  std::vector<Init> init_of_tensor;
  /// Has format `full` if the tensor is not quantized.
  std::vector<kernels::QuantizedMatrix> quantized_of_tensor;

  /// The first program of that role; an empty one if there is none.
  const LoweredProgram& of(ProgramRole role) const noexcept;
  /// The number of a trainee; -1 if there is none of that name. The empty name is the first one's.
  std::int32_t trainee(std::string_view name) const noexcept;
};

}  // namespace strata
