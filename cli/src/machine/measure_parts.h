#pragma once

#include <algorithm>

#include <strata/offload/machine_profile.h>

#include "machine/measure.h"
#include "machine/measure_rig.h"

namespace strata::cli {

// The parts of measure_machine(), each of which fills its figures and series of the profile.
Status measure_products(MeasureRig& rig, bool quick, MachineProfile& p);
/// Only of a GPU that multiplies eight bits. Needs p.product_sizes.
Status measure_fp8_products(MeasureRig& rig, MachineProfile& p);
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

/// Both directions at once carry no more than each alone, and no less than the slower: else it was noise.
inline double together(double both, double one, double other) {
  return std::clamp(both, std::min(one, other), one + other);
}

}  // namespace strata::cli
