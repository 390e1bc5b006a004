// Which generation of an id is read, which is kept beside it, and which retires.
#include <utility>

#include <strata/runtime/assert.h>

#include "store_core.h"

namespace strata::detail {

// Writes below the first one that keeps and writes from it on are two successions; in each the newest wins,
// whichever completes first. As soon as there is one of the second, it is live, and the first's is kept.
void StoreCore::publish(const Request& request) {
  IdRecord& record = *ids_.find(request.id);
  const bool live_is_uncommitted =
      record.first_uncommitted != 0 && record.live.generation >= record.first_uncommitted;
  const bool written_is_uncommitted =
      record.first_uncommitted != 0 && request.generation >= record.first_uncommitted;
  if (written_is_uncommitted && !live_is_uncommitted) record.snapshot = std::exchange(record.live, {});
  Version& succeeded = live_is_uncommitted && !written_is_uncommitted ? record.snapshot : record.live;
  if (request.generation < succeeded.generation)
    return slots_.release(request.slot);  // overtaken by a later write
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

// Its slot may be what another write waits for.
void StoreCore::free_version(Version& version) {
  if (version.slot == kNoSlot) return;
  const std::uint32_t slot_class = slots_[version.slot].slot_class;
  retire(version);
  retry_starved_writes(slot_class);
  done_.notify_all();
}

// The record, if the id is known and the store still works.
IdRecord* StoreCore::find_idle(const char* doing, std::uint64_t id) {
  if (!timeout_.is_ok()) return nullptr;  // the store is given up, whatever is in flight
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
  if (!live_is_uncommitted) return;  // no keeping write came to be published
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
