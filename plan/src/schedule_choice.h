#pragma once

#include <strata/offload/machine_profile.h>

namespace strata {
struct LoadedConfig;
}  // namespace strata

namespace strata::detail {

/// Decides parallel.schedule and parallel.virtual_stages of a pipeline if they are `auto`: by dry runs of all
/// stages the fastest of 1f1b, zb-h1, interleaved and breadth-first, which reads each stage's parameters once
/// forward and once backward and keeps the activations of all micro-batches (more stages than the devices
/// hold, dealt to them in turn). Without a profile it is 1f1b.
Status decide_schedule(LoadedConfig& loaded, const MachineProfile* profile, bool other_machine);

}  // namespace strata::detail
