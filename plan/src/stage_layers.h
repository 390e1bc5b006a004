#pragma once

#include <strata/offload/machine_profile.h>

namespace strata {
struct LoadedConfig;
}  // namespace strata

namespace strata::detail {

/// Decides parallel.stage_layers of a pipeline if it is `auto`: so that the slowest stage takes as little
/// time as possible on the machine of `profile`, or computes as few flops as possible without one. Errors:
/// those of record_micro_batch() and balance_stages().
Status decide_stage_layers(LoadedConfig& loaded, const MachineProfile* profile);

}  // namespace strata::detail
