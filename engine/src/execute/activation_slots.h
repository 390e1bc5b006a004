#pragma once

#include <cstdint>
#include <vector>

#include <strata/engine/lowering.h>
#include <strata/offload/nvme_store.h>

namespace strata::detail {

/// The slots for activations on the slow tier: one for each activation, and a spare for each size.
struct ActivationSlots {
  std::vector<SlotClass> classes;
  std::vector<std::uint32_t> class_of;  ///< the index into classes of each stored activation
};
ActivationSlots activation_slots(const LoweredProgram& program);

}  // namespace strata::detail
