#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <strata/offload/nvme_options.h>
#include <strata/runtime/status.h>
#include <strata/runtime/units.h>

#include "store/io/io_backend.h"

namespace strata::detail {

using SlotIndex = std::uint32_t;
inline constexpr SlotIndex kNoSlot = ~SlotIndex{0};

enum class SlotState : std::uint8_t { free, writing, live, retiring, bad };

constexpr bool is_valid_transition(SlotState from, SlotState to) noexcept {
  using enum SlotState;
  switch (from) {
    case free:
      return to == writing;
    case writing:
      return to == live || to == free || to == bad;  // published; failed or superseded; refused by the device
    case live:
      return to == retiring;  // superseded or discarded
    case retiring:
      return to == free;  // its last reader is done
    case bad:
      return to == writing;  // tried once more, as there is no other
  }
  return false;
}

struct StoreSlot {
  std::uint32_t slot_class = 0;
  std::uint32_t readers = 0;
  SlotState state = SlotState::free;
};

/// The slots of the store's files and their states. A slot is striped: it has one extent in each file, with
/// sizes in proportion to the files' weights, in units of kStripeUnitBytes or slightly more. Slots smaller
/// than a unit are not striped; the slots of such a class are distributed over the files. Guarded by its
/// owner; allocates only in its constructor.
class SlotAllocator {
 public:
  static constexpr std::size_t kStripeUnitBytes = 128 * kKiB;  // smaller extents are not worth an I/O request

  /// `weights`: one per file, see apportion_units().
  SlotAllocator(std::span<const SlotClass> classes, std::span<const std::uint64_t> weights);

  std::optional<SlotIndex> allocate(
      std::uint32_t slot_class);  ///< free -> writing; the one that has been free longest, to spread wear
  /// bad -> writing: the one that has been bad longest. What failed once may work again: a controller that
  /// was reset, a path that came back.
  std::optional<SlotIndex> allocate_bad(std::uint32_t slot_class);
  void publish(SlotIndex slot);   ///< writing -> live
  void release(SlotIndex slot);   ///< writing -> free
  void retire(SlotIndex slot);    ///< live -> retiring, then free once it has no readers
  void mark_bad(SlotIndex slot);  ///< writing -> bad
  void add_reader(SlotIndex slot);
  void drop_reader(SlotIndex slot);

  /// Writes the extents of the first `bytes` (a multiple of 4096) of a slot to `extents`, which has capacity
  /// for one per file. Each is in a different file and none is empty.
  void map_extents(SlotIndex slot, std::size_t bytes, std::vector<Extent>& extents) const;

  const StoreSlot& operator[](SlotIndex slot) const noexcept { return slots_[slot]; }
  std::size_t size() const noexcept { return slots_.size(); }
  std::uint64_t file_bytes(std::uint32_t file) const noexcept { return file_bytes_[file]; }
  std::uint64_t used_bytes() const noexcept { return used_bytes_; }
  std::uint64_t capacity_bytes() const noexcept;
  std::uint32_t bad(std::uint32_t slot_class) const noexcept {
    return static_cast<std::uint32_t>(classes_[slot_class].bad.size());
  }
  /// Slots being written, plus readers: the requests whose end can free a slot of the class.
  std::uint32_t n_in_flight(std::uint32_t slot_class) const noexcept {
    return classes_[slot_class].n_in_flight;
  }
  std::size_t slot_bytes(std::uint32_t slot_class) const noexcept { return classes_[slot_class].slot_bytes; }
  std::uint32_t slots(std::uint32_t slot_class) const noexcept {
    return static_cast<std::uint32_t>(classes_[slot_class].queue.size());
  }
  /// The error of a class in which no slot is free: `does_not_fit`, or `io_error` if slots of it are bad.
  Status no_free_slot(std::uint32_t slot_class) const;

 private:
  struct Class {
    std::size_t slot_bytes = 0;
    std::vector<SlotIndex> bad;  // longest bad first
    std::uint32_t n_in_flight = 0;
    std::vector<SlotIndex> queue;  // ring buffer of the free slots, longest free first
    std::size_t head = 0;
    std::size_t n_free = 0;
  };
  /// The extent of a slot in one file.
  struct SlotExtent {
    std::uint64_t offset = 0;
    std::size_t bytes = 0;
  };
  void lay_out(std::size_t slot_bytes, std::span<const std::uint64_t> units);
  void set(SlotIndex slot, SlotState to);
  void push_free(SlotIndex slot);
  SlotIndex begin_write(SlotIndex slot);
  Class& class_of(SlotIndex slot) noexcept { return classes_[slots_[slot].slot_class]; }
  std::vector<StoreSlot> slots_;
  std::vector<SlotExtent> slot_extents_;  // one per file for each slot
  std::vector<Class> classes_;
  std::vector<std::uint64_t> file_bytes_;
  std::uint64_t used_bytes_ = 0;
};

}  // namespace strata::detail
