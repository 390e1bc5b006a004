#pragma once

#include <strata/offload/machine_profile.h>
#include <strata/offload/placement_planner.h>
#include <strata/runtime/topology.h>

#include "machine/compute_device.h"

namespace strata::cli {

/// The most that each tier may have on the machine that a plan is for: no budget above it is worth proposing.
/// That of `other_machine`, or of this machine with `device`; where both tiers are RAM, what the other's
/// budget leaves of it. kUnlimited where it is not known.
TierBytes machine_memory(const MachineProfile* other_machine, const ComputeDevice& device,
                         const HostFacts& facts, const TierBytes& budgets);

}  // namespace strata::cli
