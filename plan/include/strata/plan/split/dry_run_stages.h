#pragma once

#include <vector>

#include <strata/plan/job.h>

namespace strata {

struct LoadedConfig;

/// A step of all stages of a run, whose engines ran dry together.
struct StagesDryRun {
  double step_s = 0;
  double traced_s = 0;  ///< the time of the step that was run, which may have fewer micro-batches
  /// For each stage, in their order: what it has in the tiers, computes, and waits for other ranks, in a
  /// step.
  std::vector<TierBytes> peak = {};
  std::vector<double> computes_s = {}, waits_s = {};
  std::int64_t param_elems = 0;  ///< counts all stages, and all ranks that share them
  double idle_share() const;     ///< the mean part of a step in which stages do not compute
};

/// Plans each stage of the first copy of the model, and runs all of them dry in one virtual time on
/// `machine`, which is another one than this if `other_machine`. Of a long step, two shorter ones with fewer
/// micro-batches are run, whose difference is the time of those that are left out, unless its schedule keeps
/// the activations of all micro-batches. Trace: of the shorter step. Errors: those of plan_job() and
/// forecast_ranks().
Result<StagesDryRun> dry_run_stages(const LoadedConfig& loaded, const MachineProfile& machine,
                                    bool other_machine, Trace* trace = nullptr);
/// Why the stages cannot be planned, with the table of what is missing.
Status explain_refusal(const LoadedConfig& loaded, const MachineProfile& machine, bool other_machine);

/// Whether all stages fit this machine, without the table of what is missing.
Status check_stages_fit(const LoadedConfig& loaded);

}  // namespace strata
