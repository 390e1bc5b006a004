#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <strata/chunk/layout.h>
#include <strata/chunk/mover.h>
#include <strata/chunk/placement.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/memory/budget.h>

namespace strata {

/// Memory for one payload, and the work that uses it. The fences protect the memory, not the copy in it, and
/// therefore stay when the owner changes.
struct PayloadSlot {
  BufferView memory;
  BufferView view;                  ///< the part of it that its owner has
  Fence written;                    ///< once these complete, the contents are valid
  Fence read;                       ///< once these complete too, the contents may be overwritten
  std::optional<PayloadKey> owner;  ///< the key that holds the slot; none if it is free
  bool is_home = false;

  /// `done` follows work that has overwritten the contents, after waiting for all earlier work on them.
  void set_writer(StreamRole role, const Event& done) noexcept {
    written.clear();
    read.clear();
    written.add(role, done);
  }
  /// `done` follows work that has read the contents.
  void add_reader(StreamRole role, const Event& done) noexcept { read.add(role, done); }
};

/// The slots into which the device and pinned slabs are divided, by class: homes, which their payloads own
/// for good, and the window through which the others pass. Free slots are handed out in the order in which
/// they were freed, because work queued on the memory of the one that has been free longest is the most
/// likely to have finished.
///
/// Invariant: a slot is either in its free list or has an owner, which holds no other slot of that tier; the
/// budgets are charged for all slots as long as the pool lives. Nothing is allocated after create().
class SlotPool {
 public:
  struct Slabs {
    BufferView device, pinned;  ///< have Placement::bytes() each
  };
  /// Charges whole slabs, since they are resident from the start whether their slots are used or not, and the
  /// extents on nvme. The budgets must outlive the pool. Errors: `invalid` for wrong slab sizes,
  /// `does_not_fit`.
  static Result<SlotPool> create(const ChunkLayout& layout, const Placement& placement, const Slabs& slabs,
                                 const std::array<Budget*, kTiers>& budgets);

  std::size_t n_classes() const noexcept { return by_tier_[0].size(); }
  /// The class of the payload's size, and the one whose slots in `tier` it gets.
  std::uint32_t class_of(PayloadKey key) const noexcept { return class_of_[index_of(key)]; }
  std::uint32_t class_of(PayloadKey key, Tier tier) const noexcept {
    return tier == Tier::device ? device_windows_[class_of(key)] : class_of(key);
  }
  std::span<const PayloadSlot> slots(Tier tier, std::uint32_t size_class) const noexcept {
    return class_slots(tier, size_class).slots;
  }
  std::size_t used(Tier tier, std::uint32_t size_class) const noexcept {
    return class_slots(tier, size_class).used();
  }
  /// The maximum of used() so far. Like every decision, it depends on the schedule alone.
  std::size_t peak_used(Tier tier, std::uint32_t size_class) const noexcept {
    return class_slots(tier, size_class).peak_used;
  }
  /// Whether `key` holds a slot in `tier`, device or pinned. A home is always held, whatever its contents.
  bool holds_slot(PayloadKey key, Tier tier) const noexcept { return held(key, tier) >= 0; }
  /// The slot that `key` holds.
  PayloadSlot& slot(PayloadKey key, Tier tier) noexcept {
    return class_slots(tier, class_of(key, tier)).slots[static_cast<std::size_t>(held(key, tier))];
  }
  const PayloadSlot& slot(PayloadKey key, Tier tier) const noexcept {
    return class_slots(tier, class_of(key, tier)).slots[static_cast<std::size_t>(held(key, tier))];
  }

  /// Gives `key` the slot that has been free longest, unless it holds one. Returns false if none is free.
  bool acquire(PayloadKey key, Tier tier) noexcept;
  /// Frees the slot that `key` holds, unless that is a home or there is none.
  void release(PayloadKey key, Tier tier) noexcept;
  /// Exchanges the slots of two keys of the same class, which both hold one. Whether its
  /// slot is its home stays with the key; only the memory is exchanged.
  void exchange(PayloadKey a, PayloadKey b, Tier tier) noexcept;

 private:
  /// Indices of free slots, first in, first out.
  struct FreeList {
    std::vector<std::int32_t> ring;  ///< capacity for every slot of the class
    std::size_t first = 0, n = 0;

    void push(std::int32_t slot) noexcept { ring[(first + n++) % ring.size()] = slot; }
    std::int32_t pop() noexcept {
      const std::int32_t slot = ring[first];
      first = (first + 1) % ring.size();
      --n;
      return slot;
    }
  };
  struct ClassSlots {  ///< the slots of one tier and class
    std::vector<PayloadSlot> slots;
    FreeList free;
    std::size_t peak_used = 0;  ///< homes included
    std::size_t used() const noexcept { return slots.size() - free.n; }
  };

  SlotPool() = default;
  Status carve(const ChunkLayout& layout, const Placement& placement, Tier tier, BufferView slab);
  void assign_homes(const Placement& placement, Tier tier);
  Status charge(Budget& budget, std::size_t bytes, const char* what);
  ClassSlots& class_slots(Tier tier, std::uint32_t size_class) noexcept {
    return by_tier_[index_of(tier)][size_class];
  }
  const ClassSlots& class_slots(Tier tier, std::uint32_t size_class) const noexcept {
    return by_tier_[index_of(tier)][size_class];
  }
  std::int32_t& held(PayloadKey key, Tier tier) noexcept { return held_[index_of(key)][index_of(tier)]; }
  std::int32_t held(PayloadKey key, Tier tier) const noexcept { return held_[index_of(key)][index_of(tier)]; }

  std::vector<std::uint32_t> class_of_;        // indexed by key
  std::vector<std::size_t> class_bytes_;       // bytes of a payload of each class
  std::vector<std::uint32_t> device_windows_;  // see Placement
  // Indexed by key: the index of the slot that it holds on the device and in pinned memory, or -1.
  std::vector<std::array<std::int32_t, 2>> held_;
  std::array<std::vector<ClassSlots>, 2> by_tier_;  // device, pinned; by class
  std::vector<Reservation> charges_;
};

}  // namespace strata
