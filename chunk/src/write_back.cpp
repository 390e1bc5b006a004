#include <strata/chunk/chunk_manager.h>

#include <algorithm>

#include <strata/runtime/assert.h>
#include <strata/runtime/trace/stall_meter.h>
#include <strata/runtime/str.h>

#include "describe.h"

// The chunk manager's transfers to a payload's home: write-backs, snapshots, and dropped contents.

namespace strata {

using detail::describe;
using detail::kImmediately;
using detail::kMemoryTiers;

Status ChunkManager::write_back(PayloadKey key) {
  STRATA_TRY(failed_);
  const std::optional<Tier> home = placement_.home(key);
  if (!home || valid(key, *home)) return Status::ok();
  if (!valid(key, Tier::device) && !valid(key, Tier::pinned))
    return Status::error(Code::internal,
                         str(describe(key), " is not stored in any tier and cannot be written back"));
  if (*home == Tier::device) {
    STRATA_TRY_ASSIGN(const bool begun, fetch(key, Tier::device, kImmediately));
    STRATA_ASSERT(begun, describe(key), " has no slot in its home tier");
  } else if (valid(key, Tier::device) && !valid(key, Tier::pinned)) {
    STRATA_TRY_ASSIGN(const bool begun, fetch(key, Tier::pinned, kImmediately));
    if (!begun)
      return Status::error(Code::does_not_fit,
                           str(describe(key), " could not get the pinned slot that it needs on its way to ",
                               to_string(*home)));
  }
  if (*home == Tier::nvme) return begin_write_back(key);
  STRATA_TRY(complete_fetch(key, *home));
  mark_clean(key, *home);
  return Status::ok();
}

// The contents have been copied to another tier, so dirty copies outside `keep` become clean.
void ChunkManager::mark_clean(PayloadKey key, Tier keep) {
  for (const Tier tier : kMemoryTiers)
    if (tier != keep && copy(key, tier).state == Residency::dirty) {
      set_state(key, tier, Residency::writing_back);
      set_state(key, tier, Residency::clean);
    }
}

Status ChunkManager::begin_write_back(PayloadKey key) {
  const std::uint32_t slots = class_of_[index(key)];
  std::size_t in_class = 0, oldest = write_backs_.size();
  for (std::size_t i = write_backs_.size(); i-- > 0;)
    if (class_of_[index(write_backs_[i].key)] == slots) {
      ++in_class;
      oldest = i;
    }
  if (in_class >= max_write_backs_[slots]) STRATA_TRY(wait_write_back(oldest));
  STRATA_TRY(complete_fetch(key, Tier::pinned));
  STRATA_ASSERT(!copy(key, Tier::pinned).written, describe(key),
                " is written back while it is being written");
  mark_clean(key, Tier::pinned);  // from here on nothing can fail
  if (copy(key, Tier::pinned).state == Residency::clean) set_state(key, Tier::pinned, Residency::dirty);
  set_state(key, Tier::pinned, Residency::writing_back);
  set_state(key, Tier::nvme, Residency::filling);
  write_backs_.push_back({key, {}, false});
  ++counters_.write_backs;
  counters_.written_bytes += slot(key, Tier::pinned).view.bytes;
  return Status::ok();
}

Status ChunkManager::submit(WriteBack& pending) {
  const Slot& src = slot(pending.key, Tier::pinned);
  STRATA_TRY(backend_.host_access({src.view.data, src.view.bytes, false}));
  const HostWaitScope waits(backend_.stall_meter(), StallCause::nvme);  // may wait for a free request
  STRATA_TRY_ASSIGN(pending.ticket, mover_.write_async(pending.key, src.view, has_snapshot(pending.key)));
  pending.submitted = true;
  return Status::ok();
}

Status ChunkManager::pump() {
  for (WriteBack& pending : write_backs_) {
    if (pending.submitted) continue;
    const Fence& final = slot(pending.key, Tier::pinned).written;
    const bool still = std::all_of(final.events.begin(), final.events.end(), [&](const Event& event) {
      return event.stream < 0 || backend_.is_complete(event);
    });
    if (!still) return Status::ok();  // in order, so that no write overtakes an older one
    if (const Status status = submit(pending); !status.is_ok())
      return status.annotate(str("writing back ", describe(pending.key)));
  }
  return Status::ok();
}

// While the caller waits for the NVMe tier, submits write-backs as soon as their contents are final, so that
// the device has both reads and writes to work on. Polling at this interval costs little and is soon enough
// for requests that take milliseconds.
Status ChunkManager::await(IoTicket ticket) {
  constexpr std::int64_t kLookAgainNs = 200'000;
  const HostWaitScope waits(backend_.stall_meter(), StallCause::nvme);
  const auto waits_for_work = [&] {
    return std::any_of(write_backs_.begin(), write_backs_.end(),
                       [](const WriteBack& pending) { return !pending.submitted; });
  };
  while (waits_for_work() && !mover_.wait_for(ticket, kLookAgainNs))
    if (!pump().is_ok()) break;  // wait_write_back() will return the error
  return mover_.wait(ticket);
}

Status ChunkManager::submit_when_final(WriteBack& pending) {
  if (pending.submitted) return Status::ok();
  STRATA_TRY(wait_on_host(slot(pending.key, Tier::pinned).written));
  return submit(pending);
}

Status ChunkManager::submit_write_backs() {
  for (WriteBack& pending : write_backs_)
    if (const Status status = submit_when_final(pending); !status.is_ok())
      return status.annotate(str("writing back ", describe(pending.key)));
  return Status::ok();
}

// A prefetch that took the slot of a recent write-back would have to wait for the work that produces its
// contents and then for the write. The most recent two thirds of the pinned window (or of the spare extents,
// if there are fewer) are therefore left alone. In a window of three chunks, one is then being updated, one
// written back and one read.
bool ChunkManager::is_recent_write_back(PayloadKey key) const noexcept {
  const std::uint32_t slots = class_of_[index(key)];
  const std::size_t limit = std::min<std::size_t>(
      max_write_backs_[slots], placement_.classes[slots].window[static_cast<std::size_t>(Tier::pinned)]);
  std::size_t younger = 0;
  for (std::size_t i = write_backs_.size(); i-- > 0;) {
    if (write_backs_[i].key == key) return 3 * younger < 2 * limit;
    younger += class_of_[index(write_backs_[i].key)] == slots ? 1 : 0;
  }
  return false;
}

Status ChunkManager::wait_write_back(std::size_t i) {
  const PayloadKey key = write_backs_[i].key;
  Status status = submit_when_final(write_backs_[i]);
  // Also submits writes that became final meanwhile, so that they overlap with this one. Their errors are
  // returned by their own waits.
  (void)pump();
  if (status.is_ok()) status = await(write_backs_[i].ticket);
  write_backs_.erase(write_backs_.begin() + static_cast<std::ptrdiff_t>(i));
  set_state(key, Tier::pinned, status.is_ok() ? Residency::clean : Residency::dirty);
  set_state(key, Tier::nvme, status.is_ok() ? Residency::clean : Residency::absent);
  return status.is_ok() ? status : status.annotate(str("writing back ", describe(key)));
}

Status ChunkManager::wait_write_back(PayloadKey key) {
  for (std::size_t i = 0; i < write_backs_.size(); ++i)
    if (write_backs_[i].key == key) return wait_write_back(i);
  return Status::ok();
}

Status ChunkManager::wait_write_backs() {
  while (!write_backs_.empty()) STRATA_TRY(wait_write_back(0));
  return Status::ok();
}

void ChunkManager::abort_pending() noexcept {
  for (std::size_t i = 0; i < copies_.size(); ++i)
    for (const Tier tier : kMemoryTiers) (void)complete_fetch(key_of(static_cast<std::int32_t>(i)), tier);
  while (!write_backs_.empty()) (void)wait_write_back(0);
}

Status ChunkManager::snapshot(PayloadKey key) {
  STRATA_TRY(commit(key));
  STRATA_TRY(quiesce(key));
  STRATA_TRY(write_back(key));  // for the case that an earlier write has failed
  STRATA_TRY(wait_write_back(key));
  has_snapshot_[index(key)] = true;
  return Status::ok();
}

Status ChunkManager::commit(PayloadKey key) {
  if (!has_snapshot(key)) return Status::ok();
  STRATA_TRY(quiesce(key));
  mover_.commit(key);
  has_snapshot_[index(key)] = false;
  return Status::ok();
}

void ChunkManager::rollback(PayloadKey key) noexcept {
  if (!has_snapshot(key)) return;
  (void)wait_write_back(key);
  for (const Tier tier : kMemoryTiers) {
    (void)complete_fetch(key, tier);
    if (valid(key, tier)) (void)release_copy(key, tier);  // nothing is pending, so it cannot fail
  }
  mover_.rollback(key);
  has_snapshot_[index(key)] = false;
  if (valid(key, Tier::nvme)) return;
  set_state(key, Tier::nvme, Residency::filling);
  set_state(key, Tier::nvme, Residency::clean);
}

Status ChunkManager::drop(PayloadKey key) {
  STRATA_TRY(commit(key));
  if (copy(key, Tier::pinned).state == Residency::writing_back) STRATA_TRY(wait_write_back(key));
  for (std::size_t t = 0; t < kTiers; ++t)
    if (valid(key, static_cast<Tier>(t))) STRATA_TRY(release_copy(key, static_cast<Tier>(t)));
  return Status::ok();
}

}  // namespace strata
