#include "slot_pool.h"

#include <numeric>

#include <strata/runtime/assert.h>

namespace strata::detail {

SlotPool::SlotPool(std::span<const SlotClass> classes, std::uint32_t files) : file_bytes_(files) {
  for (std::uint32_t c = 0; c < classes.size(); ++c) {
    Class& made = classes_.emplace_back();
    made.slot_bytes = classes[c].slot_bytes;
    for (std::uint32_t i = 0; i < classes[c].slots; ++i) {
      const auto slot = static_cast<SlotIndex>(slots_.size());
      const std::uint32_t file =
          slot % files;  // dealt out in turn, so that consecutive requests meet different devices
      slots_.push_back({file_bytes_[file], file, c, 0, SlotState::free});
      file_bytes_[file] += made.slot_bytes;
      made.queue.push_back(slot);
    }
    made.n_free = made.queue.size();
  }
}

std::uint64_t SlotPool::capacity_bytes() const noexcept {
  return std::accumulate(file_bytes_.begin(), file_bytes_.end(), std::uint64_t{0});
}

void SlotPool::set(SlotIndex slot, SlotState to) {
  const SlotState from = slots_[slot].state;
  STRATA_ASSERT(may_become(from, to), "slot ", slot, " cannot go from state ", static_cast<int>(from), " to ",
                static_cast<int>(to));
  slots_[slot].state = to;
}

std::optional<SlotIndex> SlotPool::take(std::uint32_t slot_class) {
  Class& from = classes_[slot_class];
  if (from.n_free == 0) return std::nullopt;
  const SlotIndex slot = from.queue[from.head];
  from.head = (from.head + 1) % from.queue.size();
  --from.n_free;
  set(slot, SlotState::writing);
  used_bytes_ += from.slot_bytes;
  return slot;
}

void SlotPool::give_back(SlotIndex slot) {
  set(slot, SlotState::free);
  Class& to = classes_[slots_[slot].slot_class];
  to.queue[(to.head + to.n_free) % to.queue.size()] = slot;
  ++to.n_free;
  used_bytes_ -= to.slot_bytes;
}

void SlotPool::release(SlotIndex slot) {
  STRATA_ASSERT(slots_[slot].state == SlotState::writing, "slot ", slot, " is not being written");
  give_back(slot);
}

void SlotPool::retire(SlotIndex slot) {
  set(slot, SlotState::retiring);
  if (slots_[slot].readers == 0) give_back(slot);
}

void SlotPool::mark_bad(SlotIndex slot) {
  set(slot, SlotState::bad);
  Class& of = classes_[slots_[slot].slot_class];
  ++of.bad;
  used_bytes_ -= of.slot_bytes;
}

void SlotPool::add_reader(SlotIndex slot) {
  STRATA_ASSERT(slots_[slot].state == SlotState::live, "slot ", slot, " is read before it is published");
  ++slots_[slot].readers;
}

void SlotPool::drop_reader(SlotIndex slot) {
  STRATA_ASSERT(slots_[slot].readers > 0, "slot ", slot, " has no reader to drop");
  if (--slots_[slot].readers == 0 && slots_[slot].state == SlotState::retiring) give_back(slot);
}

}  // namespace strata::detail
