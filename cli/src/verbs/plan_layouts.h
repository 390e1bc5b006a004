#pragma once

#include <string>
#include <vector>

#include <strata/plan/split/mesh_search.h>

namespace strata::cli {

/// The layouts of a search that were run dry, the best first.
struct FoundLayouts {
  std::size_t possible = 0;  ///< that fit by closed forms
  std::vector<DryRunLayout> tried;
  const DryRunLayout& best() const { return tried.front(); }
};
/// Searches the layouts of `ranks` ranks, and runs the best few dry. Errors: those of mesh_layouts(); that of
/// the best layout if none of these runs.
Result<FoundLayouts> find_layouts(const LoadedConfig& loaded, int ranks, const LoadWith& load,
                                  const MachineProfile& machine, bool other_machine);
/// A table of the layouts and of the stages of the best one, and what would make its step faster.
std::string layouts_text(const FoundLayouts& found, const MachineProfile& machine, double tokens);
std::string layouts_json(const FoundLayouts& found, const MachineProfile& machine, double tokens);

}  // namespace strata::cli
