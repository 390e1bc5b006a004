#include <strata/chunk/slot_pool.h>

#include <algorithm>
#include <utility>

#include <strata/runtime/str.h>

namespace strata {

Result<SlotPool> SlotPool::create(const ChunkLayout& layout, const Placement& placement, const Slabs& slabs,
                                  const std::array<Budget*, kTiers>& budgets) {
  SlotPool pool;
  const std::size_t n_keys = layout.n_chunks() * kPayloads;
  pool.held_.resize(n_keys, {-1, -1});
  pool.class_of_.resize(n_keys, 0);
  for (std::size_t i = 0; i < n_keys; ++i)
    if (const PayloadKey key = key_at(i); layout.has(key.chunk, key.payload))
      pool.class_of_[i] = placement.class_of(layout, key);
  for (std::uint32_t c = 0; c < placement.classes.size(); ++c) {
    pool.class_bytes_.push_back(placement.classes[c].slot_bytes);
    pool.device_windows_.push_back(placement.window_class(c, Tier::device));
  }
  for (const Tier tier : kMemoryTiers) {
    const BufferView slab = tier == Tier::device ? slabs.device : slabs.pinned;
    STRATA_TRY(pool.carve(layout, placement, tier, slab));
    STRATA_TRY(pool.charge(*budgets[index_of(tier)], slab.bytes, "slots of chunk payloads"));
  }
  // On nvme all extents, spares included, exist for the whole run.
  STRATA_TRY(pool.charge(*budgets[index_of(Tier::nvme)], placement.bytes(layout, Tier::nvme),
                         "extents of chunk payloads"));
  return pool;
}

// Homes get the first slots of their class, in key order, followed by the window.
Status SlotPool::carve(const ChunkLayout& layout, const Placement& placement, Tier tier, BufferView slab) {
  if (slab.bytes != placement.bytes(layout, tier))
    return Status::error(Code::invalid,
                         str(to_string(tier), " slab has ", slab.bytes, " bytes, but the placement needs ",
                             placement.bytes(layout, tier)));
  const std::vector<std::uint32_t> homes = placement.home_counts(layout, tier);
  std::size_t offset = 0;
  for (std::size_t c = 0; c < placement.classes.size(); ++c) {
    const SizeClass& size_class = placement.classes[c];
    ClassSlots& carved = by_tier_[index_of(tier)].emplace_back();
    const std::uint32_t n = homes[c] + size_class.window[index_of(tier)];
    carved.slots.resize(n);
    for (std::uint32_t s = 0; s < n; ++s, offset += size_class.slot_bytes)
      carved.slots[s].memory = carved.slots[s].view = slab.part(offset, size_class.slot_bytes);
    carved.free.ring.resize(n);
    for (std::uint32_t s = homes[c]; s < n; ++s) carved.free.push(static_cast<std::int32_t>(s));
    carved.peak_used = carved.used();
  }
  assign_homes(placement, tier);
  return Status::ok();
}

void SlotPool::assign_homes(const Placement& placement, Tier tier) {
  std::vector<std::int32_t> next(placement.classes.size(), 0);  // indexed by class
  for (std::size_t i = 0; i < held_.size(); ++i) {
    const PayloadKey key = key_at(i);
    if (placement.home(key) != tier) continue;
    held(key, tier) = next[class_of(key)]++;
    PayloadSlot& home = slot(key, tier);
    home.is_home = true;
    home.owner = key;
  }
}

Status SlotPool::charge(Budget& budget, std::size_t bytes, const char* what) {
  if (bytes == 0) return Status::ok();
  STRATA_TRY_ASSIGN(Reservation taken, budget.reserve(bytes, what));
  charges_.push_back(std::move(taken));
  return Status::ok();
}

bool SlotPool::acquire(PayloadKey key, Tier tier) noexcept {
  if (holds_slot(key, tier)) return true;
  ClassSlots& of_class = class_slots(tier, class_of(key, tier));
  if (of_class.free.n == 0) return false;
  held(key, tier) = of_class.free.pop();
  PayloadSlot& taken = slot(key, tier);
  taken.owner = key;
  taken.view = taken.memory.part(0, class_bytes_[class_of(key)]);
  of_class.peak_used = std::max(of_class.peak_used, of_class.used());
  return true;
}

void SlotPool::release(PayloadKey key, Tier tier) noexcept {
  if (tier == Tier::nvme || !holds_slot(key, tier) || slot(key, tier).is_home) return;
  slot(key, tier).owner.reset();
  class_slots(tier, class_of(key, tier)).free.push(std::exchange(held(key, tier), -1));
}

void SlotPool::exchange(PayloadKey a, PayloadKey b, Tier tier) noexcept {
  PayloadSlot& slot_of_a = slot(a, tier);
  PayloadSlot& slot_of_b = slot(b, tier);
  std::swap(slot_of_a.owner, slot_of_b.owner);
  std::swap(slot_of_a.is_home, slot_of_b.is_home);
  std::swap(held(a, tier), held(b, tier));
}

}  // namespace strata
