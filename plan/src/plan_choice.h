#pragma once

#include <vector>

#include <strata/engine/plan_search.h>
#include <strata/plan/activation_choices.h>

namespace strata {

struct LoadedConfig;

/// Candidate programs for the step, and the activation choice of each.
struct CandidatePrograms {
  std::vector<ActivationChoice> activations;
  std::vector<ProgramSet> programs;
};
/// Finds the plan that is fastest by the forecast for `profile`, or without a profile the first that fits.
/// Fills `candidates` with the programs that were tried; FoundPlan::programs is an index into them. Programs
/// that offload activations take long to record, and are recorded only if no other fits. Errors:
/// `does_not_fit`, with a table if `explain_refusal` is set.
Result<FoundPlan> choose_plan(const LoadedConfig& loaded, CandidatePrograms& candidates,
                              const SessionOptions& asked, const MachineProfile* profile,
                              bool explain_refusal);

}  // namespace strata
