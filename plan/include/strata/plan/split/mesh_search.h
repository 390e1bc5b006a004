#pragma once

#include <functional>
#include <vector>

#include <strata/plan/split/dry_run_stages.h>
#include <strata/plan/split/mesh_layouts.h>

namespace strata {

struct LoadedConfig;

/// A layout whose stages were planned and forecast together by their real engines.
struct DryRunLayout : StagesDryRun {
  LayoutEstimate estimate = {};
  Status refused = {};  ///< why it cannot run; then there is no dry run
};

/// Loads the configuration of a run with more assignments. Several threads call it.
using LoadWith = std::function<Result<LoadedConfig>(const std::vector<std::string>& assignments)>;

/// dry_run_stages() of a layout.
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
