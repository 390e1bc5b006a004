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

std::int32_t RunPlan::trainee(std::string_view name) const noexcept {
  for (std::size_t i = 0; i < steps.size(); ++i)
    if (name.empty() || steps[i].trainee == name) return static_cast<std::int32_t>(i);
  return -1;
}

}  // namespace strata
