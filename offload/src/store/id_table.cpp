#include "store/id_table.h"

#include <bit>

#include <strata/runtime/assert.h>

namespace strata::detail {

IdTable::IdTable(std::size_t max_ids) : records_(std::bit_ceil(2 * max_ids + 2)) {}

std::size_t IdTable::bucket_of(std::uint64_t id) const noexcept {
  id = (id ^ (id >> 30)) * 0xBF58476D1CE4E5B9u;  // splitmix64's finisher (Steele et al. 2014)
  id = (id ^ (id >> 27)) * 0x94D049BB133111EBu;
  return static_cast<std::size_t>(id ^ (id >> 31)) & (records_.size() - 1);
}

std::size_t IdTable::probe(std::uint64_t id) const noexcept {
  std::size_t at = bucket_of(id);
  while (records_[at].used && records_[at].id != id) at = (at + 1) & (records_.size() - 1);
  return at;
}

IdRecord* IdTable::find(std::uint64_t id) noexcept {
  IdRecord& record = records_[probe(id)];
  return record.used ? &record : nullptr;
}

const IdRecord* IdTable::find(std::uint64_t id) const noexcept {
  const IdRecord& record = records_[probe(id)];
  return record.used ? &record : nullptr;
}

IdRecord& IdTable::find_or_add(std::uint64_t id) {
  IdRecord& record = records_[probe(id)];
  if (!record.used) {
    STRATA_ASSERT(2 * ++used_ <= records_.size(), "id table holds ", used_, " ids in ", records_.size(),
                  " records");
    record = {};
    record.id = id;
    record.used = true;
  }
  return record;
}

// Later records of the same cluster move back into the hole, so that no probe sequence is broken (Knuth,
// TAOCP 6.4, algorithm R).
void IdTable::erase(std::uint64_t id) noexcept {
  const std::size_t mask = records_.size() - 1;
  std::size_t hole = probe(id);
  if (!records_[hole].used) return;
  for (std::size_t at = (hole + 1) & mask; records_[at].used; at = (at + 1) & mask)
    if (((at - bucket_of(records_[at].id)) & mask) >= ((at - hole) & mask)) {
      records_[hole] = records_[at];
      hole = at;
    }
  records_[hole] = {};
  --used_;
}

}  // namespace strata::detail
