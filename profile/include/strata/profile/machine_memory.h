#pragma once

#include <strata/offload/machine_profile.h>
#include <strata/offload/placement_planner.h>
#include <strata/profile/compute_device.h>
#include <strata/runtime/threads/topology.h>

namespace strata {

/// The maximum budget of each tier on the machine that a plan is for: suggestions never exceed it. The
/// machine is `other_machine`, or if that is null this one with `device`. If both tiers are RAM, each may
/// have what the other's budget leaves. kUnlimited if the size is unknown.
TierBytes machine_memory(const MachineProfile* other_machine, const ComputeDevice& device,
                         const HostFacts& facts, const TierBytes& budgets);

}  // namespace strata
