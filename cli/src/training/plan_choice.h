#pragma once

#include <vector>

#include <strata/engine/plan_search.h>

#include "load_config.h"
#include "training/activation_choices.h"

namespace strata::cli {

/// Ways to run the step, as programs.
struct CandidatePrograms {
  std::vector<ActivationChoice> activations;
  std::vector<ProgramSet> programs;
};
/// The plan that is fastest by `profile`, or without one the first that fits; `candidates` are those that
/// were tried, and its `programs` an index into them. Programs whose activations leave take long to record,
/// and are asked for only where no other fits. Errors: `does_not_fit`, with a table where `explain_refusal`.
Result<FoundPlan> choose_plan(const LoadedConfig& loaded, CandidatePrograms& candidates,
                              const EngineOptions& asked, const MachineProfile* profile,
                              bool explain_refusal);

}  // namespace strata::cli
