#include <strata/chunk/chunk_manager.h>

#include <strata/runtime/str.h>

#include "describe.h"

namespace strata {

using detail::describe;
using detail::kMemoryTiers;

Status ChunkManager::audit() const {
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    const PayloadKey key = key_of(static_cast<std::int32_t>(i));
    int dirty = 0;
    for (const Tier tier : kMemoryTiers) {
      const Copy& held = copy(key, tier);
      dirty += held.state == Residency::dirty ? 1 : 0;
      if (held.state != Residency::absent && held.slot < 0)
        return Status::error(Code::internal, str(describe(key), " has no slot in ", to_string(tier)));
      if (held.pins > 0 && held.state == Residency::absent)
        return Status::error(Code::internal, str(describe(key), " is pinned and absent"));
      if (held.slot >= 0) {
        const Slot& memory =
            pools_[static_cast<std::size_t>(tier)][class_of_[i]].slots[static_cast<std::size_t>(held.slot)];
        if (memory.owner != static_cast<std::int32_t>(i))
          return Status::error(Code::internal, str(describe(key), " holds a slot that another payload owns"));
        if (!memory.home && held.state == Residency::absent)
          return Status::error(Code::internal, str(describe(key), " is absent but holds a window slot"));
      }
    }
    if (dirty > 1) return Status::error(Code::internal, str(describe(key), " is dirty in two tiers"));
    if (dirty == 1 && valid(key, Tier::nvme))
      return Status::error(Code::internal, str(describe(key), " is dirty and its nvme copy is not stale"));
  }
  for (std::size_t t = 0; t < 2; ++t)
    for (const Pool& slots : pools_[t]) {
      std::size_t owned = 0;
      for (const Slot& memory : slots.slots) owned += memory.owner >= 0 ? 1u : 0u;
      if (owned + slots.free.size() != slots.slots.size())
        return Status::error(Code::internal, str(slots.slots.size(), " slots, ", owned, " owned, ",
                                                 slots.free.size(), " free"));
    }
  return Status::ok();
}

}  // namespace strata
