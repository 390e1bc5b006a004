#include "store/slot_allocator.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

#include "store/stripe.h"

namespace strata::detail {

SlotAllocator::SlotAllocator(std::span<const SlotClass> classes, std::span<const std::uint64_t> weights)
    : file_bytes_(weights.size()) {
  const std::size_t files = weights.size();
  std::vector<std::uint64_t> before(files), after(files), units(files);
  for (std::uint32_t c = 0; c < classes.size(); ++c) {
    Class& made = classes_.emplace_back();
    made.slot_bytes = classes[c].slot_bytes;
    const std::uint64_t n_units = std::max<std::uint64_t>(1, made.slot_bytes / kStripeUnitBytes);
    std::fill(before.begin(), before.end(), 0);
    for (std::uint32_t i = 0; i < classes[c].slots; ++i) {
      apportion_units((i + 1) * n_units, weights, after);
      std::transform(after.begin(), after.end(), before.begin(), units.begin(), std::minus<>());
      before.swap(after);
      lay_out(made.slot_bytes, units);
      made.queue.push_back(static_cast<SlotIndex>(slots_.size()));
      slots_.push_back({c, 0, SlotState::free});
    }
    made.n_free = made.queue.size();
    made.bad.reserve(made.queue.size());
  }
}

// Unit sizes differ by at most a page.
void SlotAllocator::lay_out(std::size_t slot_bytes, std::span<const std::uint64_t> units) {
  const std::uint64_t n_units = std::accumulate(units.begin(), units.end(), std::uint64_t{0});
  std::uint64_t unit = 0;
  std::size_t begin = 0;
  for (std::size_t file = 0; file < file_bytes_.size(); ++file) {
    unit += units[file];
    const std::size_t end = unit * (slot_bytes / kPageBytes) / n_units * kPageBytes;
    slot_extents_.push_back({file_bytes_[file], end - begin});
    file_bytes_[file] += end - begin;
    begin = end;
  }
}

// A shorter object is split in the proportions of the slot; the pages that rounding leaves over go to extents
// that have room.
void SlotAllocator::map_extents(SlotIndex slot, std::size_t bytes, std::vector<Extent>& extents) const {
  const std::span<const SlotExtent> slot_extents(slot_extents_.data() + slot * file_bytes_.size(),
                                                 file_bytes_.size());
  const std::size_t whole = slot_bytes(slots_[slot].slot_class);
  const auto share = [&](const SlotExtent& extent) {
    return bytes == whole
               ? extent.bytes
               : extent.bytes / kPageBytes * (bytes / kPageBytes) / (whole / kPageBytes) * kPageBytes;
  };
  std::size_t left = bytes;
  for (const SlotExtent& extent : slot_extents) left -= share(extent);
  extents.clear();
  for (std::uint32_t file = 0; file < slot_extents.size(); ++file) {
    const std::size_t more = std::min(left, slot_extents[file].bytes - share(slot_extents[file]));
    const std::size_t here = share(slot_extents[file]) + more;
    left -= more;
    if (here > 0) extents.push_back({file, slot_extents[file].offset, here});
  }
}

std::uint64_t SlotAllocator::capacity_bytes() const noexcept {
  return std::accumulate(file_bytes_.begin(), file_bytes_.end(), std::uint64_t{0});
}

void SlotAllocator::set(SlotIndex slot, SlotState to) {
  const SlotState from = slots_[slot].state;
  STRATA_ASSERT(is_valid_transition(from, to), "slot ", slot, " cannot go from state ",
                static_cast<int>(from), " to ", static_cast<int>(to));
  slots_[slot].state = to;
}

std::optional<SlotIndex> SlotAllocator::allocate(std::uint32_t slot_class) {
  Class& from = classes_[slot_class];
  if (from.n_free == 0) return std::nullopt;
  const SlotIndex slot = from.queue[from.head];
  from.head = (from.head + 1) % from.queue.size();
  --from.n_free;
  return begin_write(slot);
}

std::optional<SlotIndex> SlotAllocator::allocate_bad(std::uint32_t slot_class) {
  std::vector<SlotIndex>& bad = classes_[slot_class].bad;
  if (bad.empty()) return std::nullopt;
  const SlotIndex slot = bad.front();
  bad.erase(bad.begin());
  return begin_write(slot);
}

SlotIndex SlotAllocator::begin_write(SlotIndex slot) {
  set(slot, SlotState::writing);
  Class& of = class_of(slot);
  ++of.n_in_flight;
  used_bytes_ += of.slot_bytes;
  return slot;
}

void SlotAllocator::push_free(SlotIndex slot) {
  set(slot, SlotState::free);
  Class& to = class_of(slot);
  to.queue[(to.head + to.n_free) % to.queue.size()] = slot;
  ++to.n_free;
  used_bytes_ -= to.slot_bytes;
}

void SlotAllocator::publish(SlotIndex slot) {
  set(slot, SlotState::live);
  --class_of(slot).n_in_flight;
}

void SlotAllocator::release(SlotIndex slot) {
  STRATA_ASSERT(slots_[slot].state == SlotState::writing, "slot ", slot, " is not being written");
  push_free(slot);
  --class_of(slot).n_in_flight;
}

void SlotAllocator::retire(SlotIndex slot) {
  set(slot, SlotState::retiring);
  if (slots_[slot].readers == 0) push_free(slot);
}

void SlotAllocator::mark_bad(SlotIndex slot) {
  set(slot, SlotState::bad);
  Class& of = class_of(slot);
  of.bad.push_back(slot);
  --of.n_in_flight;
  used_bytes_ -= of.slot_bytes;
}

void SlotAllocator::add_reader(SlotIndex slot) {
  STRATA_ASSERT(slots_[slot].state == SlotState::live, "slot ", slot, " is read before it is published");
  ++slots_[slot].readers;
  ++class_of(slot).n_in_flight;
}

void SlotAllocator::drop_reader(SlotIndex slot) {
  STRATA_ASSERT(slots_[slot].readers > 0, "slot ", slot, " has no reader to drop");
  --class_of(slot).n_in_flight;
  if (--slots_[slot].readers == 0 && slots_[slot].state == SlotState::retiring) push_free(slot);
}

Status SlotAllocator::no_free_slot(std::uint32_t slot_class) const {
  const std::uint32_t n_bad = bad(slot_class);
  return Status::error(
      n_bad > 0 ? Code::io_error : Code::does_not_fit,
      str("class ", slot_class, " has no free slot: ", slots(slot_class), " slots of ",
          slot_bytes(slot_class), " bytes, ", slots(slot_class) - n_bad, " hold data, ", n_bad, " are bad"));
}

}  // namespace strata::detail
