#pragma once

#include <algorithm>
#include <vector>

#include <strata/offload/machine_profile.h>

#include "machine/measure.h"
#include "machine/measure_rig.h"

namespace strata::cli {

// The parts of measure_machine(), each of which fills its figures and series of the profile.
Status measure_products(MeasureRig& rig, bool quick, MachineProfile& p);
Status measure_attention(MeasureRig& rig, MachineProfile& p);
/// What a block has beside its products: a norm, an activation, a sum; and what any instruction takes.
Status measure_streaming(MeasureRig& rig, MachineProfile& p);
Status measure_link(MeasureRig& rig, bool quick, MachineProfile& p);
/// Needs the link's figures.
Status measure_handing_over(MeasureRig& rig, MachineProfile& p);
Status measure_ram(MeasureRig& rig, bool quick, MachineProfile& p);
/// Needs p.cores.
Status measure_optimizer(MeasureRig& rig, bool quick, MachineProfile& p);
Status measure_disk(MeasureRig& rig, const MeasureOptions& options, MachineProfile& p);

/// What a run has to ask for. Each needs p.gemm_sizes, and leaves p as it is where it fails.
struct MeasuredChoice {
  const char* name;
  Status (*measure)(MeasureRig& rig, MachineProfile& p);
};
/// Those that this device and this build may have.
std::vector<MeasuredChoice> choices_of(const MeasureRig& rig);

/// Both directions at once carry no more than each alone, and no less than the slower: else it was noise.
inline double together(double both, double one, double other) {
  return std::clamp(both, std::min(one, other), one + other);
}

}  // namespace strata::cli
