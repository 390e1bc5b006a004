#include <strata/session/state_plan.h>

#include <strata/offload/nvme_options.h>
#include <strata/offload/tier_mover.h>

namespace strata {

std::uint32_t first_driver_class(const StatePlan& plan) {
  return static_cast<std::uint32_t>(nvme_slot_classes(plan.layout, plan.placement).size());
}

std::uint64_t first_driver_object(const StatePlan& plan) noexcept {
  return std::uint64_t{plan.layout.n_chunks()} * kPayloads;
}

}  // namespace strata
