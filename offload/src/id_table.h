#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "slot_allocator.h"

namespace strata::detail {

/// One generation of an id that can be read.
struct Version {
  SlotIndex slot = kNoSlot;  // kNoSlot: there is none
  std::uint32_t crc = 0;
  std::uint64_t generation = 0;
  std::size_t bytes = 0;
};

/// What is published under an id, and how much is in flight on it.
struct IdRecord {
  std::uint64_t id = 0;
  Version live;
  Version snapshot;  // the newest generation below `first_uncommitted`, while `live` is not below it
  std::uint64_t first_uncommitted = 0;  // the first generation that may be taken back; 0: none may
  std::uint32_t pending = 0;
  bool used = false;
};

/// id -> record by linear probing, with room for all ids there can be (each holds a slot), so that it never
/// grows. Pointers are valid until the next add or erase. Guarded by its owner.
class IdTable {
 public:
  explicit IdTable(std::size_t max_ids);
  IdRecord* find(std::uint64_t id) noexcept;
  const IdRecord* find(std::uint64_t id) const noexcept;
  IdRecord& find_or_add(std::uint64_t id);
  void erase(std::uint64_t id) noexcept;

 private:
  std::size_t bucket_of(std::uint64_t id) const noexcept;
  std::size_t probe(std::uint64_t id) const noexcept;  ///< of the id, or the empty place where it would go
  std::vector<IdRecord> records_;                      // a power of two, at most half full
  std::size_t used_ = 0;
};

}  // namespace strata::detail
