#include "eviction.h"

#include <algorithm>

namespace strata::detail {
namespace {

// Whether `key` is in use in `tier`, or would be lost without its copy there.
bool must_stay(const EvictionInputs& inputs, PayloadKey key, Tier tier) noexcept {
  return inputs.residency.is_pinned(key, tier) ||
         (!inputs.placement.home(key) && !inputs.residency.has_copy_outside(key, tier));
}

bool is_recent_write_back(const EvictionInputs& inputs, PayloadKey key, Tier tier) noexcept {
  return inputs.residency.state(key, tier) == Residency::writing_back &&
         inputs.write_backs.is_recent(key, inputs.uses.n_positions_a_round_ago());
}

// When the payload that is the first to be evicted from the device is used there; before every use if
// nothing is in its slots. What is used before then stays, since what is fetched meanwhile is, right after
// its own use, the first.
std::int32_t latest_use_on_device(const EvictionInputs& inputs, std::uint32_t size_class) noexcept {
  std::int32_t latest = UseSchedule::kImmediately;
  for (const PayloadSlot& slot : inputs.slots.slots(Tier::device, size_class))
    if (!slot.is_home && slot.owner)
      latest = std::max(latest, inputs.uses.next_use(*slot.owner, Tier::device));
  return latest;
}

// When the pinned copy of `key` is needed next. If there is a second copy that stays on the device, that one
// serves the next use there, and the pinned one is for the use after it.
std::int32_t next_need_of_pinned(const EvictionInputs& inputs, PayloadKey key,
                                 std::int32_t latest_on_device) noexcept {
  const std::int32_t next = inputs.uses.next_use(key, Tier::pinned);
  if (!inputs.residency.has_copy(key, Tier::device)) return next;
  const std::int32_t on_device = inputs.uses.next_use(key, Tier::device);
  if (on_device > next || on_device >= latest_on_device) return next;
  return inputs.uses.use_from(key, Tier::pinned, on_device + 1);
}

}  // namespace

std::optional<PayloadKey> choose_victim(const EvictionInputs& inputs, PayloadKey key, Tier tier,
                                        std::int32_t needed_at) noexcept {
  std::optional<PayloadKey> victim;
  std::int32_t latest = 0;
  bool victim_is_clean = false;
  const std::int32_t latest_on_device =
      tier == Tier::pinned ? latest_use_on_device(inputs, inputs.slots.class_of(key, Tier::device)) : 0;
  for (const PayloadSlot& slot : inputs.slots.slots(tier, inputs.slots.class_of(key, tier))) {
    if (slot.is_home || !slot.owner || must_stay(inputs, *slot.owner, tier)) continue;
    const std::int32_t next = tier == Tier::pinned
                                  ? next_need_of_pinned(inputs, *slot.owner, latest_on_device)
                                  : inputs.uses.next_use(*slot.owner, tier);
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
