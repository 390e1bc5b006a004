#pragma once

#include <vector>

#include <strata/graph/program.h>
#include <strata/offload/machine_profile.h>

namespace strata {

/// Seconds that the instructions of each region of `program` take, forward and backward, by the rates that
/// were measured of the machine, each alone and with its operands on the compute device. Exchanges between
/// ranks take no time.
std::vector<double> region_seconds(const Program& program, const MachineProfile& profile);

}  // namespace strata
