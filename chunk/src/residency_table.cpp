#include <strata/chunk/residency_table.h>

#include <algorithm>

#include <strata/runtime/assert.h>

#include "describe.h"

namespace strata {

using detail::describe;

ResidencyTable::ResidencyTable(std::size_t n_chunks, PayloadNotes* notes)
    : payloads_(n_chunks * kPayloads), notes_(notes) {}

ResidencyTable::~ResidencyTable() {
  for (const PayloadState& payload : payloads_)
    for (const CopyState& copy : payload.copies)
      STRATA_ASSERT(copy.pins == 0, "a chunk manager is destroyed while a pin is alive");
}

bool ResidencyTable::has_copy_outside(PayloadKey key, Tier tier) const noexcept {
  return std::any_of(kAllTiers.begin(), kAllTiers.end(),
                     [&](Tier other) { return other != tier && has_copy(key, other); });
}

void ResidencyTable::set_state(PayloadKey key, Tier tier, Residency to) {
  Residency& state = copy(key, tier).state;
  STRATA_ASSERT(is_valid_transition(state, to), describe(key), " in ", to_string(tier),
                " cannot change from state ", to_string(state), " to ", to_string(to));
  state = to;
  if (to == Residency::absent && notes_ != nullptr) notes_->absent(key, tier);
}

void ResidencyTable::make_newest(PayloadKey key, Tier tier) {
  if (state(key, tier) != Residency::dirty) set_state(key, tier, Residency::dirty);
  for (const Tier other : kAllTiers)
    if (other != tier && has_copy(key, other)) {
      STRATA_ASSERT(!is_pinned(key, other), describe(key), " is pinned in ", to_string(other),
                    " and cannot be written in ", to_string(tier));
      set_state(key, other, Residency::absent);
    }
  ++payloads_[index_of(key)].generation;
}

void ResidencyTable::clean_copies_outside(PayloadKey key, Tier tier) {
  for (const Tier other : kMemoryTiers)
    if (other != tier && state(key, other) == Residency::dirty) {
      set_state(key, other, Residency::writing_back);
      set_state(key, other, Residency::clean);
    }
}

void ResidencyTable::pin(PayloadKey key, Tier tier, Intent intent) noexcept {
  CopyState& pinned = copy(key, tier);
  ++pinned.pins;
  if (intent != Intent::read) pinned.written = true;
}

void ResidencyTable::unpin(PayloadKey key, Tier tier, Intent intent) noexcept {
  CopyState& pinned = copy(key, tier);
  STRATA_ASSERT(pinned.pins > 0, describe(key), " is unpinned twice");
  --pinned.pins;
  if (intent != Intent::read) pinned.written = false;
}

}  // namespace strata
