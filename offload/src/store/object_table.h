#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <strata/offload/object_store.h>

#include "store/id_table.h"
#include "store/slot_allocator.h"

namespace strata::detail {

/// Which generation of an id is live, which is its snapshot, and which is retired. Whatever is not live, a
/// snapshot or being read has given its slot back. An id is known while it has a generation or a request in
/// flight. Guarded by its owner; allocates only in its constructor.
class ObjectTable {
 public:
  /// The slots outlive the table.
  explicit ObjectTable(SlotAllocator& slots) : slots_(slots), ids_(slots.size()) {}

  const Version* live(std::uint64_t id) const noexcept;  ///< null if nothing is published

  void begin_write(std::uint64_t id, std::uint64_t generation, WriteMode mode);
  /// Publishes what a write has written to its slot, or frees that slot if a later write was published.
  void publish(std::uint64_t id, const Version& written);
  void end_write(std::uint64_t id) { drop_pending(id); }

  /// Requires that live() is not null, and reads that version.
  void begin_read(std::uint64_t id);
  void end_read(std::uint64_t id, SlotIndex slot);

  /// These require that the id has no request in flight (asserted), and return the versions whose slots they
  /// freed. Unknown ids are ignored.
  std::array<Version, 2> discard(std::uint64_t id);
  Version commit(std::uint64_t id);
  Version rollback(std::uint64_t id);

 private:
  IdRecord* find_idle(const char* doing, std::uint64_t id);
  Version retire(Version& version);
  void drop_pending(std::uint64_t id);

  SlotAllocator& slots_;
  IdTable ids_;
};

}  // namespace strata::detail
