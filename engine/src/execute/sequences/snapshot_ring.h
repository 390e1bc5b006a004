#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace strata::detail {

/// The positions at which snapshots of each slot were taken. A slot has room for the same number of them, and
/// a further one takes the place of the oldest. Allocates nothing after construction, but for text().
class SnapshotRing {
 public:
  SnapshotRing(std::size_t slots, std::int32_t per_slot);

  std::int32_t per_slot() const noexcept { return per_slot_; }
  /// The place of the slot's snapshot at a position among all places; -1 if there is none.
  std::int32_t find(std::int32_t slot, std::int32_t position) const noexcept;
  /// The largest position of the slot's snapshots that is at most `position`; 0 if there is none.
  std::int32_t latest(std::int32_t slot, std::int32_t position) const noexcept;
  /// Empties and returns a place for a new snapshot: a free one, or that of the oldest. `per_slot` > 0.
  std::int32_t make_room(std::int32_t slot) noexcept;
  /// The place has the snapshot at a position > 0 from now on.
  void set(std::int32_t place, std::int32_t position) noexcept;
  void drop_beyond(std::int32_t slot, std::int32_t position) noexcept;
  void clear() noexcept;
  /// "2 and 64": the slot's positions in order; empty if there are none.
  std::string text(std::int32_t slot) const;

 private:
  struct Place {
    std::int32_t position = -1;  // -1: free
    std::uint64_t number = 0;    // counts snapshots
  };
  std::size_t first_of(std::int32_t slot) const noexcept {
    return static_cast<std::size_t>(slot) * static_cast<std::size_t>(per_slot_);
  }

  std::int32_t per_slot_;
  std::vector<Place> places_;  // a slot has its own one behind the other
  std::uint64_t n_taken_ = 0;
};

}  // namespace strata::detail
