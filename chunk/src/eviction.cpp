#include "eviction.h"

namespace strata::detail {
namespace {

// Whether `key` is in use in `tier`, or would be lost without its copy there.
bool must_stay(const EvictionInputs& inputs, PayloadKey key, Tier tier) noexcept {
  return inputs.residency.is_pinned(key, tier) ||
         (!inputs.placement.home(key) && !inputs.residency.has_copy_outside(key, tier));
}

bool is_recent_write_back(const EvictionInputs& inputs, PayloadKey key, Tier tier) noexcept {
  return inputs.residency.state(key, tier) == Residency::writing_back && inputs.write_backs.is_recent(key);
}

}  // namespace

std::optional<PayloadKey> choose_victim(const EvictionInputs& inputs, PayloadKey key, Tier tier,
                                        std::int32_t needed_at) noexcept {
  std::optional<PayloadKey> victim;
  std::int32_t latest = 0;
  bool victim_is_clean = false;
  for (const PayloadSlot& slot : inputs.slots.slots(tier, inputs.slots.class_of(key))) {
    if (slot.is_home || !slot.owner || must_stay(inputs, *slot.owner, tier)) continue;
    const std::int32_t next = inputs.uses.next_use(*slot.owner, tier);
    if (next <= needed_at) continue;
    if (needed_at != UseSchedule::kImmediately && is_recent_write_back(inputs, *slot.owner, tier)) continue;
    const bool clean = inputs.residency.state(*slot.owner, tier) == Residency::clean;
    if (victim && (next < latest || (next == latest && (victim_is_clean || !clean)))) continue;
    victim = slot.owner;
    latest = next;
    victim_is_clean = clean;
  }
  return victim;
}

}  // namespace strata::detail
