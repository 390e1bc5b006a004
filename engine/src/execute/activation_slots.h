#pragma once

#include <vector>

#include <strata/engine/lowering.h>
#include <strata/offload/nvme_store.h>

namespace strata::detail {

/// The slot classes for activations on the slow tier: one slot for each activation, and a spare for each
/// size.
std::vector<SlotClass> activation_slots(const LoweredProgram& program);

}  // namespace strata::detail
