#pragma once

#include <strata/train/split/mesh_search.h>

namespace strata::detail {

/// Plans each stage of the first copy of the model, and runs all of them dry in one virtual time. See
/// dry_run_layout().
Result<DryRunLayout> dry_run_stages(const LoadedConfig& loaded, const MachineProfile& machine,
                                    bool other_machine, Trace* trace = nullptr);
/// Why the stages cannot be planned, with the table of what is missing.
Status explain_refusal(const LoadedConfig& loaded, const MachineProfile& machine, bool other_machine);

}  // namespace strata::detail
