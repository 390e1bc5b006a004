#include "store/object_table.h"

#include <utility>

#include <strata/runtime/assert.h>

namespace strata::detail {

const Version* ObjectTable::live(std::uint64_t id) const noexcept {
  const IdRecord* record = ids_.find(id);
  return record == nullptr || record->live.slot == kNoSlot ? nullptr : &record->live;
}

void ObjectTable::begin_write(std::uint64_t id, std::uint64_t generation, WriteMode mode) {
  IdRecord& record = ids_.find_or_add(id);
  ++record.pending;
  if (mode == WriteMode::snapshot && (record.first_uncommitted == 0 || generation < record.first_uncommitted))
    record.first_uncommitted = generation;
}

// The writes before the first snapshot write and the writes from it on form two series; in each the newest
// generation wins, whichever completes first. Once the second series has a generation, that is live and the
// one of the first series is the snapshot.
void ObjectTable::publish(std::uint64_t id, const Version& written) {
  IdRecord& record = *ids_.find(id);
  const bool live_is_uncommitted =
      record.first_uncommitted != 0 && record.live.generation >= record.first_uncommitted;
  const bool written_is_uncommitted =
      record.first_uncommitted != 0 && written.generation >= record.first_uncommitted;
  if (written_is_uncommitted && !live_is_uncommitted) record.snapshot = std::exchange(record.live, {});
  Version& succeeded = live_is_uncommitted && !written_is_uncommitted ? record.snapshot : record.live;
  if (written.generation < succeeded.generation)
    return slots_.release(written.slot);  // superseded by a later write
  slots_.publish(written.slot);
  retire(succeeded);
  succeeded = written;
}

void ObjectTable::begin_read(std::uint64_t id) {
  IdRecord& record = *ids_.find(id);
  ++record.pending;
  slots_.add_reader(record.live.slot);
}

void ObjectTable::end_read(std::uint64_t id, SlotIndex slot) {
  slots_.drop_reader(slot);
  drop_pending(id);
}

void ObjectTable::drop_pending(std::uint64_t id) {
  IdRecord& record = *ids_.find(id);
  --record.pending;
  if (record.pending == 0 && record.live.slot == kNoSlot) ids_.erase(id);  // its first write failed
}

Version ObjectTable::retire(Version& version) {
  if (version.slot != kNoSlot) slots_.retire(version.slot);
  return std::exchange(version, {});
}

IdRecord* ObjectTable::find_idle(const char* doing, std::uint64_t id) {
  IdRecord* record = ids_.find(id);
  if (record != nullptr)
    STRATA_ASSERT(record->pending == 0, doing, " id ", id, " with ", record->pending, " requests in flight");
  return record;
}

std::array<Version, 2> ObjectTable::discard(std::uint64_t id) {
  IdRecord* record = find_idle("discarding", id);
  if (record == nullptr) return {};
  const std::array<Version, 2> freed{retire(record->live), retire(record->snapshot)};
  ids_.erase(id);
  return freed;
}

Version ObjectTable::commit(std::uint64_t id) {
  IdRecord* record = find_idle("committing", id);
  if (record == nullptr) return {};
  record->first_uncommitted = 0;
  return retire(record->snapshot);
}

Version ObjectTable::rollback(std::uint64_t id) {
  IdRecord* record = find_idle("rolling back", id);
  if (record == nullptr) return {};
  const bool live_is_uncommitted =
      record->first_uncommitted != 0 && record->live.generation >= record->first_uncommitted;
  record->first_uncommitted = 0;
  if (!live_is_uncommitted) return {};  // no snapshot write was published
  const Version freed = retire(record->live);
  record->live = std::exchange(record->snapshot, {});
  if (record->live.slot == kNoSlot) ids_.erase(id);
  return freed;
}

}  // namespace strata::detail
