#include <strata/engine/run_plan.h>

namespace strata {
namespace {

const LoweredProgram kNoProgram;

}  // namespace

const LoweredProgram& RunPlan::of(ProgramRole role) const noexcept {
  for (const PlannedProgram& planned : programs)
    if (planned.role == role) return planned.program;
  return kNoProgram;
}

}  // namespace strata
