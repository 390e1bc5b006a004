#pragma once

#include <functional>
#include <vector>

#include <strata/train/job.h>
#include <strata/train/split/mesh_layouts.h>

namespace strata {

/// A layout whose stages were planned and forecast together by their real engines.
struct DryRunLayout {
  LayoutEstimate estimate = {};
  Status refused = {};  ///< why it cannot run; then the rest is empty
  double step_s = 0;
  double traced_s = 0;  ///< of the step that was run, which may have fewer micro-batches
  /// Of the stages, in their order: what each has in the tiers, computes, and waits for other ranks, in a
  /// step.
  std::vector<TierBytes> peak = {};
  std::vector<double> computes_s = {}, waits_s = {};
  std::int64_t param_elems = 0;  ///< of all stages, and all ranks that share them
  double idle_share() const;     ///< of all stages: the mean part of a step that is not computing
};

/// Loads the configuration of a run with more assignments. Several threads call it.
using LoadWith = std::function<Result<LoadedConfig>(const std::vector<std::string>& assignments)>;

/// Plans each stage of the first copy of the model, and runs all of them dry in one virtual time on
/// `machine`, which is another one than this if `other_machine`. Of a long step, two shorter ones with fewer
/// micro-batches are run, whose difference is the time of those that are left out. Trace: of the shorter
/// step.
DryRunLayout dry_run_layout(const LayoutEstimate& estimate, const LoadWith& load,
                            const MachineProfile& machine, bool other_machine, Trace* trace = nullptr);
/// Why the stages of a layout cannot be planned, with the tables that say what is missing.
Status explain_refusal(const MeshLayout& layout, const LoadWith& load, const MachineProfile& machine,
                       bool other_machine);
/// The same as dry_run_layout() of the best `n` of `estimates`, the fastest first, and those that were
/// refused last. `threads` of them are run at a time; it does not matter for what they find.
std::vector<DryRunLayout> dry_run_layouts(const std::vector<LayoutEstimate>& estimates, std::size_t n,
                                          const LoadWith& load, const MachineProfile& machine,
                                          bool other_machine, int threads);

/// Which keys of section `parallel` are set, and so are not searched.
MeshRequest mesh_request(const LoadedConfig& loaded, int ranks);

}  // namespace strata
