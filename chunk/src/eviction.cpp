#include "eviction.h"

namespace strata::detail {
namespace {

// Whether `key` is in use in `tier`, or would be lost without its copy there.
bool must_stay(const EvictionInputs& inputs, PayloadKey key, Tier tier) noexcept {
  return inputs.residency.is_pinned(key, tier) ||
         (!inputs.placement.home(key) && !inputs.residency.has_copy_outside(key, tier));
}

bool is_recent_write_back(const EvictionInputs& inputs, PayloadKey key, Tier tier) noexcept {
  return inputs.residency.state(key, tier) == Residency::writing_back &&
         inputs.write_backs.is_recent(key, inputs.uses.n_positions());
}

// Whether `key` keeps its slot on the device until it is used there: everything does that is not the first to
// be evicted, since what is fetched meanwhile is then, right after its own use, the first to be evicted.
bool stays_on_device(const EvictionInputs& inputs, PayloadKey key, std::int32_t used_at) noexcept {
  for (const PayloadSlot& slot : inputs.slots.slots(Tier::device, inputs.slots.class_of(key)))
    if (!slot.is_home && slot.owner && inputs.uses.next_use(*slot.owner, Tier::device) > used_at) return true;
  return false;
}

// When the copy of `key` in `tier` is needed next. What pinned memory has a second copy of serves its next
// use from the device, and is read from pinned memory for the one after it.
std::int32_t next_need(const EvictionInputs& inputs, PayloadKey key, Tier tier) noexcept {
  const std::int32_t next = inputs.uses.next_use(key, tier);
  if (tier != Tier::pinned || !inputs.residency.has_copy(key, Tier::device)) return next;
  const std::int32_t on_device = inputs.uses.next_use(key, Tier::device);
  if (on_device == UseSchedule::kNever || on_device > next || !stays_on_device(inputs, key, on_device))
    return next;
  return inputs.uses.use_from(key, tier, on_device + 1);
}

}  // namespace

std::optional<PayloadKey> choose_victim(const EvictionInputs& inputs, PayloadKey key, Tier tier,
                                        std::int32_t needed_at) noexcept {
  std::optional<PayloadKey> victim;
  std::int32_t latest = 0;
  bool victim_is_clean = false;
  for (const PayloadSlot& slot : inputs.slots.slots(tier, inputs.slots.class_of(key))) {
    if (slot.is_home || !slot.owner || must_stay(inputs, *slot.owner, tier)) continue;
    const std::int32_t next = next_need(inputs, *slot.owner, tier);
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
