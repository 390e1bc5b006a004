#include <strata/chunk/audit.h>

#include <algorithm>
#include <optional>
#include <string>

#include <strata/runtime/str.h>

#include "describe.h"

namespace strata {

using detail::describe;

namespace {

// The fault of the copy of `key` in a memory tier, or nothing.
std::optional<std::string> fault_of_copy(const ResidencyTable& residency, const SlotPool& slots,
                                         PayloadKey key, Tier tier) {
  const bool present = residency.has_copy(key, tier);
  if (present && !slots.holds_slot(key, tier)) return str(describe(key), " has no slot in ", to_string(tier));
  if (!present && residency.is_pinned(key, tier)) return str(describe(key), " is pinned and absent");
  if (!slots.holds_slot(key, tier)) return std::nullopt;
  const PayloadSlot& slot = slots.slot(key, tier);
  if (slot.owner != key) return str(describe(key), " holds a slot that another payload owns");
  if (!slot.is_home && !present) return str(describe(key), " is absent but holds a window slot");
  return std::nullopt;
}

std::optional<std::string> fault_of_payload(const ResidencyTable& residency, const SlotPool& slots,
                                            PayloadKey key) {
  int dirty = 0;
  for (const Tier tier : kMemoryTiers) {
    if (auto fault = fault_of_copy(residency, slots, key, tier)) return fault;
    dirty += residency.state(key, tier) == Residency::dirty ? 1 : 0;
  }
  if (dirty > 1) return str(describe(key), " is dirty in two tiers");
  if (dirty == 1 && residency.has_copy(key, Tier::nvme))
    return str(describe(key), " is dirty and its nvme copy is not stale");
  return std::nullopt;
}

}  // namespace

Status audit(const ResidencyTable& residency, const SlotPool& slots) {
  for (std::size_t i = 0; i < residency.n_keys(); ++i)
    if (const auto fault = fault_of_payload(residency, slots, key_at(i)))
      return Status::error(Code::internal, *fault);
  for (const Tier tier : kMemoryTiers)
    for (std::uint32_t c = 0; c < slots.n_classes(); ++c) {
      const std::span<const PayloadSlot> of_class = slots.slots(tier, c);
      const auto owned = static_cast<std::size_t>(std::count_if(
          of_class.begin(), of_class.end(), [](const PayloadSlot& slot) { return slot.owner.has_value(); }));
      if (owned != slots.used(tier, c))
        return Status::error(Code::internal, str(of_class.size(), " slots, ", owned, " owned, ",
                                                 of_class.size() - slots.used(tier, c), " free"));
    }
  return Status::ok();
}

}  // namespace strata
