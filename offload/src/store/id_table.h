#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "store/slot_allocator.h"

namespace strata::detail {

/// One readable generation of an id.
struct Version {
  SlotIndex slot = kNoSlot;  // kNoSlot: no such generation
  std::uint32_t crc = 0;
  std::uint64_t generation = 0;
  std::size_t bytes = 0;
};

/// The published generations of an id and the number of its requests in flight.
struct IdRecord {
  std::uint64_t id = 0;
  Version live;
  Version snapshot;  // the newest generation below `first_uncommitted`, if `live` is not below it
  std::uint64_t first_uncommitted = 0;  // the first generation that rollback() undoes; 0: none
  std::uint32_t pending = 0;
  bool used = false;
};

/// Hash table from id to record with linear probing. It is sized for the maximum number of ids (each occupies
/// a slot), so it never grows. Pointers are valid until the next add or erase. Guarded by its owner.
class IdTable {
 public:
  explicit IdTable(std::size_t max_ids);
  IdRecord* find(std::uint64_t id) noexcept;
  const IdRecord* find(std::uint64_t id) const noexcept;
  IdRecord& find_or_add(std::uint64_t id);
  void erase(std::uint64_t id) noexcept;

 private:
  std::size_t bucket_of(std::uint64_t id) const noexcept;
  std::size_t probe(std::uint64_t id) const noexcept;  ///< index of the id, or of the empty record for it
  std::vector<IdRecord> records_;                      // size is a power of two; at most half full
  std::size_t used_ = 0;
};

}  // namespace strata::detail
