#include <strata/chunk/chunk_manager.h>

#include <algorithm>

#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

#include "describe.h"

// The chunk manager's memory: which slots there are, who holds them, and which copy is evicted.

namespace strata {

using detail::describe;
using detail::kImmediately;
using detail::kMemoryTiers;

Status ChunkManager::initialize(const Slabs& slabs) {
  STRATA_TRY(init_copies());
  STRATA_TRY(init_write_back_limits());
  STRATA_TRY(carve_slots(Tier::device, slabs.device));
  STRATA_TRY(carve_slots(Tier::pinned, slabs.pinned));
  // On nvme all extents, spares included, exist for the whole run.
  return charge(Tier::nvme, placement_.bytes(layout_, Tier::nvme), "extents of chunk payloads");
}

Status ChunkManager::init_copies() {
  if (placement_.homes.size() != layout_.n_chunks())
    return Status::error(Code::invalid, str("the placement has homes for ", placement_.homes.size(),
                                            " chunks, but the layout has ", layout_.n_chunks()));
  const std::size_t n_keys = layout_.n_chunks() * kPayloads;
  copies_.resize(n_keys);
  generation_.resize(n_keys, 0);
  has_snapshot_.resize(n_keys, false);
  uses_.resize(n_keys);
  class_of_.resize(n_keys);
  for (std::size_t i = 0; i < n_keys; ++i) {
    const PayloadKey key = key_of(static_cast<std::int32_t>(i));
    if (layout_.has(key.chunk, key.payload))
      class_of_[i] = placement_.class_of(layout_, key);
    else if (placement_.home(key))
      return Status::error(Code::invalid, str(describe(key), " has no bytes but has a home in ",
                                              to_string(*placement_.home(key))));
  }
  return Status::ok();
}

Status ChunkManager::init_write_back_limits() {
  const std::vector<std::uint32_t> on_nvme = placement_.home_counts(layout_, Tier::nvme);
  std::size_t spares = 0;
  for (std::size_t c = 0; c < placement_.classes.size(); ++c) {
    const SizeClass& slots = placement_.classes[c];
    max_write_backs_.push_back(slots.window[static_cast<std::size_t>(Tier::nvme)]);
    spares += max_write_backs_.back();
    if (on_nvme[c] > 0 && max_write_backs_.back() == 0)
      return Status::error(Code::invalid, str(on_nvme[c], " payloads of ", slots.slot_bytes,
                                              " bytes have their home on nvme, which has no spare slot"));
  }
  write_backs_.reserve(spares + 1);
  return Status::ok();
}

// Homes get the first slots of their class, in key order, followed by the window.
Status ChunkManager::carve_slots(Tier tier, BufferView slab) {
  if (slab.bytes != placement_.bytes(layout_, tier))
    return Status::error(Code::invalid,
                         str(to_string(tier), " slab has ", slab.bytes, " bytes, but the placement needs ",
                             placement_.bytes(layout_, tier)));
  const std::vector<std::uint32_t> homes = placement_.home_counts(layout_, tier);
  std::size_t offset = 0;
  auto& pools = pools_[static_cast<std::size_t>(tier)];
  for (std::size_t c = 0; c < placement_.classes.size(); ++c) {
    const SizeClass& slots = placement_.classes[c];
    pools.emplace_back();
    const std::uint32_t n = homes[c] + slots.window[static_cast<std::size_t>(tier)];
    pools.back().slots.resize(n);
    for (std::uint32_t s = 0; s < n; ++s, offset += slots.slot_bytes)
      pools.back().slots[s].view = slab.part(offset, slots.slot_bytes);
    pools.back().free.ring.resize(n);
    for (std::uint32_t s = homes[c]; s < n; ++s) pools.back().free.push(static_cast<std::int32_t>(s));
  }
  std::vector<std::int32_t> next(placement_.classes.size(), 0);
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    const PayloadKey key = key_of(static_cast<std::int32_t>(i));
    if (placement_.home(key) != tier) continue;
    Copy& home = copy(key, tier);
    home.slot = next[class_of_[i]]++;
    Slot& held = pools[class_of_[i]].slots[static_cast<std::size_t>(home.slot)];
    held.home = true;
    held.owner = static_cast<std::int32_t>(i);
  }
  for (Pool& slots : pools) slots.peak_used = slots.slots.size() - slots.free.size();
  // The windows are charged too: the whole slab is resident from the start, whether its slots are used or
  // not.
  return charge(tier, slab.bytes, "slots of chunk payloads");
}

// Charges the budget for as long as the manager lives.
Status ChunkManager::charge(Tier tier, std::size_t bytes, const char* what) {
  if (bytes == 0) return Status::ok();
  STRATA_TRY_ASSIGN(Reservation taken, budgets_[static_cast<std::size_t>(tier)]->reserve(bytes, what));
  charges_.push_back(std::move(taken));
  return Status::ok();
}

Result<bool> ChunkManager::acquire_slot(PayloadKey key, Tier tier, std::int32_t needed_at) {
  Copy& target = copy(key, tier);
  if (target.slot >= 0) return true;  // already has a slot; a home always does
  Pool& slots = pool(key, tier);
  if (slots.free.empty()) {
    STRATA_TRY_ASSIGN(const bool made, make_room(key, tier, needed_at));
    if (!made) return false;
  }
  target.slot = slots.free.front();
  slots.free.pop();
  slots.slots[static_cast<std::size_t>(target.slot)].owner = static_cast<std::int32_t>(index(key));
  slots.peak_used = std::max(slots.peak_used, slots.slots.size() - slots.free.size());
  return true;
}

// The fences stay with the slot: they protect the memory, not the copy.
void ChunkManager::release_slot(PayloadKey key, Tier tier) {
  if (tier == Tier::nvme || slot(key, tier).home) return;
  Slot& held = slot(key, tier);
  held.owner = -1;
  pool(key, tier).free.push(copy(key, tier).slot);
  copy(key, tier).slot = -1;
}

// Undoes acquire_slot() if the transfer it was for has failed.
void ChunkManager::release_unfilled_slot(PayloadKey key, Tier tier) {
  if (copy(key, tier).state == Residency::absent && copy(key, tier).slot >= 0) release_slot(key, tier);
}

bool ChunkManager::is_last_without_home(PayloadKey key, Tier tier) const noexcept {
  if (placement_.home(key)) return false;
  for (const Tier other : kMemoryTiers)
    if (other != tier && valid(key, other)) return false;
  return true;
}

// Releases the copy, and its slot unless it is a home.
Status ChunkManager::release_copy(PayloadKey key, Tier tier) {
  Copy& left = copy(key, tier);
  STRATA_ASSERT(left.pins == 0, describe(key), " is pinned in ", to_string(tier), " and cannot be released");
  if (left.state == Residency::writing_back) STRATA_TRY(wait_write_back(key));
  if (left.state == Residency::filling) STRATA_TRY(complete_fetch(key, tier));
  set_state(key, tier, Residency::absent);
  release_slot(key, tier);
  return Status::ok();
}

// Frees one slot of the key's class by evicting the copy whose next use is latest and later than `needed_at`.
Result<bool> ChunkManager::make_room(PayloadKey key, Tier tier, std::int32_t needed_at) {
  std::int32_t victim = -1, latest = 0;
  bool victim_is_clean = false;
  for (const Slot& held : pool(key, tier).slots) {
    if (held.home || held.owner < 0) continue;
    const PayloadKey other = key_of(held.owner);
    if (copy(other, tier).pins > 0 || is_last_without_home(other, tier)) continue;
    const std::int32_t next = next_use(other, tier);
    const bool clean = copy(other, tier).state == Residency::clean;
    if (next <= needed_at) continue;
    if (needed_at != kImmediately && copy(other, tier).state == Residency::writing_back &&
        is_recent_write_back(other))
      continue;
    if (victim >= 0 && (next < latest || (next == latest && (victim_is_clean || !clean)))) continue;
    victim = held.owner;
    latest = next;
    victim_is_clean = clean;
  }
  if (victim < 0) return false;
  ++counters_.evictions;
  STRATA_TRY(evict(key_of(victim), tier));
  return true;
}

Status ChunkManager::transfer(PayloadKey from, PayloadKey to, Tier tier) {
  STRATA_ASSERT(class_of_[index(from)] == class_of_[index(to)] && placement_.home(to) == tier, describe(from),
                " cannot be transferred to ", describe(to), " in ", to_string(tier));
  if (!valid(from, tier))
    return Status::error(Code::internal, str(describe(from), " is not in ", to_string(tier)));
  STRATA_TRY(quiesce(from));
  STRATA_TRY(quiesce(to));
  Slot& gained = slot(from, tier);
  Slot& left = slot(to, tier);
  std::swap(copy(from, tier).slot, copy(to, tier).slot);
  std::swap(gained.owner, left.owner);
  std::swap(gained.home, left.home);
  invalidate_other_copies(to, tier);
  return drop(from);  // nothing is pending, so it cannot fail
}

Status ChunkManager::evict(PayloadKey key, Tier tier) {
  STRATA_ASSERT(placement_.home(key) != tier, describe(key), " cannot be evicted from its home in ",
                to_string(tier));
  if (copy(key, tier).state == Residency::dirty) STRATA_TRY(write_back(key));
  if (!valid(key, tier)) return Status::ok();
  bool elsewhere = false;
  for (std::size_t t = 0; t < kTiers; ++t)
    elsewhere = elsewhere || (static_cast<Tier>(t) != tier && valid(key, static_cast<Tier>(t)));
  STRATA_ASSERT(elsewhere, describe(key), " would be lost if evicted from ", to_string(tier));
  return release_copy(key, tier);
}

}  // namespace strata
