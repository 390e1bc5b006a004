// Which generation of an id is live, which is its snapshot, and which is retired.
#include <utility>

#include <strata/runtime/assert.h>

#include "store/store_core.h"

namespace strata::detail {

// The writes before the first snapshot write and the writes from it on form two series; in each the newest
// generation wins, whichever completes first. Once the second series has a generation, that is live and the
// one of the first series is the snapshot.
void StoreCore::publish(const Request& request) {
  IdRecord& record = *ids_.find(request.id);
  const bool live_is_uncommitted =
      record.first_uncommitted != 0 && record.live.generation >= record.first_uncommitted;
  const bool written_is_uncommitted =
      record.first_uncommitted != 0 && request.generation >= record.first_uncommitted;
  if (written_is_uncommitted && !live_is_uncommitted) record.snapshot = std::exchange(record.live, {});
  Version& succeeded = live_is_uncommitted && !written_is_uncommitted ? record.snapshot : record.live;
  if (request.generation < succeeded.generation)
    return slots_.release(request.slot);  // superseded by a later write
  slots_.publish(request.slot);
  retire(succeeded);
  succeeded = {request.slot, object_checksum(request), request.generation, request.bytes};
}

void StoreCore::drop_pending(std::uint64_t id) {
  IdRecord& record = *ids_.find(id);
  --record.pending;
  if (record.pending == 0 && record.live.slot == kNoSlot) ids_.erase(id);  // its first write failed
}

void StoreCore::retire(Version& version) {
  if (version.slot != kNoSlot) slots_.retire(version.slot);
  version = {};
}

// Another write may be waiting for the slot.
void StoreCore::free_version(Version& version) {
  if (version.slot == kNoSlot) return;
  const std::uint32_t slot_class = slots_[version.slot].slot_class;
  retire(version);
  retry_starved_writes(slot_class);
  done_.notify_all();
}

// Returns the record if the id is known and the store has not timed out, else null.
IdRecord* StoreCore::find_idle(const char* doing, std::uint64_t id) {
  if (!timeout_.is_ok()) return nullptr;  // requests in flight never complete
  IdRecord* record = ids_.find(id);
  if (record != nullptr)
    STRATA_ASSERT(record->pending == 0, doing, " id ", id, " with ", record->pending, " requests in flight");
  return record;
}

void StoreCore::discard(std::uint64_t id) {
  const MutexLock lock(mutex_);
  IdRecord* record = find_idle("discarding", id);
  if (record == nullptr) return;
  free_version(record->live);
  free_version(record->snapshot);
  ids_.erase(id);
}

void StoreCore::commit(std::uint64_t id) {
  const MutexLock lock(mutex_);
  IdRecord* record = find_idle("committing", id);
  if (record == nullptr) return;
  record->first_uncommitted = 0;
  free_version(record->snapshot);
}

void StoreCore::rollback(std::uint64_t id) {
  const MutexLock lock(mutex_);
  IdRecord* record = find_idle("rolling back", id);
  if (record == nullptr) return;
  const bool live_is_uncommitted =
      record->first_uncommitted != 0 && record->live.generation >= record->first_uncommitted;
  record->first_uncommitted = 0;
  if (!live_is_uncommitted) return;  // no snapshot write was published
  free_version(record->live);
  record->live = std::exchange(record->snapshot, {});
  if (record->live.slot == kNoSlot) ids_.erase(id);
}

std::optional<StoredInfo> StoreCore::find(std::uint64_t id) const {
  const MutexLock lock(mutex_);
  const IdRecord* record = ids_.find(id);
  if (record == nullptr || record->live.slot == kNoSlot) return std::nullopt;
  return StoredInfo{record->live.bytes, record->live.generation};
}

}  // namespace strata::detail
