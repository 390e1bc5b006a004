#include <strata/chunk/chunk_manager.h>

#include <algorithm>

#include <strata/runtime/assert.h>
#include <strata/runtime/stall_meter.h>
#include <strata/runtime/str.h>

#include "describe.h"

// The chunk manager's way to the slow tier: payloads sent home, writes under way, contents dropped.

namespace strata {

using detail::describe;
using detail::kAtOnce;
using detail::kMemoryTiers;

Status ChunkManager::send_home(CopyKey key) {
  STRATA_TRY(failed_);
  const std::optional<Tier> home = placement_.home(key);
  if (!home || valid(key, *home)) return Status::ok();
  if (!valid(key, Tier::device) && !valid(key, Tier::pinned))
    return Status::error(Code::internal, str(describe(key), " is in no tier and was to be sent home"));
  if (*home == Tier::device) {
    STRATA_TRY_ASSIGN(const bool begun, fetch(key, Tier::device, kAtOnce));
    STRATA_ASSERT(begun, describe(key), " has no room in its home");
  } else if (valid(key, Tier::device) && !valid(key, Tier::pinned)) {
    STRATA_TRY_ASSIGN(const bool begun, fetch(key, Tier::pinned, kAtOnce));
    if (!begun)
      return Status::error(Code::does_not_fit,
                           str(describe(key), " finds no pinned slot on its way to ", to_string(*home)));
  }
  if (*home == Tier::nvme) return begin_drain(key);
  STRATA_TRY(arrive(key, *home));
  settle_dirty(key, *home);
  return Status::ok();
}

// What has been copied on is no longer the only newest copy.
void ChunkManager::settle_dirty(CopyKey key, Tier keep) {
  for (const Tier tier : kMemoryTiers)
    if (tier != keep && copy(key, tier).state == Residency::dirty) {
      become(key, tier, Residency::draining);
      become(key, tier, Residency::clean);
    }
}

Status ChunkManager::begin_drain(CopyKey key) {
  const std::uint32_t slots = class_of_[index(key)];
  std::size_t in_class = 0, oldest = drains_.size();
  for (std::size_t i = drains_.size(); i-- > 0;)
    if (class_of_[index(drains_[i].key)] == slots) {
      ++in_class;
      oldest = i;
    }
  if (in_class >= spare_drains_[slots]) STRATA_TRY(settle(oldest));
  STRATA_TRY(arrive(key, Tier::pinned));
  STRATA_ASSERT(!copy(key, Tier::pinned).written, describe(key), " is sent home while it is written");
  settle_dirty(key, Tier::pinned);  // from here on nothing can fail
  if (copy(key, Tier::pinned).state == Residency::clean) become(key, Tier::pinned, Residency::dirty);
  become(key, Tier::pinned, Residency::draining);
  become(key, Tier::nvme, Residency::filling);
  drains_.push_back({key, {}, false});
  ++counters_.write_backs;
  counters_.written_bytes += slot(key, Tier::pinned).view.bytes;
  return Status::ok();
}

Status ChunkManager::submit(Drain& drain) {
  const Slot& src = slot(drain.key, Tier::pinned);
  STRATA_TRY(backend_.host_access({src.view.data, src.view.bytes, false}));
  const HostWaits waits(backend_.stalls(), StallCause::nvme);  // for a free request
  STRATA_TRY_ASSIGN(drain.ticket, mover_.write_async(drain.key, src.view, guarded(drain.key)));
  drain.submitted = true;
  return Status::ok();
}

Status ChunkManager::pump() {
  for (Drain& drain : drains_) {
    if (drain.submitted) continue;
    const Fence& final = slot(drain.key, Tier::pinned).written;
    const bool still = std::all_of(final.events.begin(), final.events.end(), [&](const Event& event) {
      return event.stream < 0 || backend_.is_complete(event);
    });
    if (!still) return Status::ok();  // in order, so that the oldest is never overtaken
    if (const Status status = submit(drain); !status.is_ok())
      return status.annotate(str("writing back ", describe(drain.key)));
  }
  return Status::ok();
}

// Meanwhile what becomes final is sent out: while the caller waits for the slow tier it shall have both to
// read and to write. Looking that often costs little, and is soon enough for requests of milliseconds.
Status ChunkManager::await(IoTicket ticket) {
  constexpr std::int64_t kLookAgainNs = 200'000;
  const HostWaits waits(backend_.stalls(), StallCause::nvme);
  const auto waits_for_work = [&] {
    return std::any_of(drains_.begin(), drains_.end(), [](const Drain& drain) { return !drain.submitted; });
  };
  while (waits_for_work() && !mover_.wait_for(ticket, kLookAgainNs))
    if (!pump().is_ok()) break;  // it is told when it is settled
  return mover_.wait(ticket);
}

Status ChunkManager::submit_when_final(Drain& drain) {
  if (drain.submitted) return Status::ok();
  STRATA_TRY(wait_on_host(slot(drain.key, Tier::pinned).written));
  return submit(drain);
}

Status ChunkManager::submit_all() {
  for (Drain& drain : drains_)
    if (const Status status = submit_when_final(drain); !status.is_ok())
      return status.annotate(str("writing back ", describe(drain.key)));
  return Status::ok();
}

// Whoever waits for it waits for the work that writes its contents, and for those writes: two thirds of the
// window, or of the spares where they are fewer, are left alone. In a window of three chunks one is then
// updated, one written, and one read.
bool ChunkManager::is_young_drain(CopyKey key) const noexcept {
  const std::uint32_t slots = class_of_[index(key)];
  const std::size_t most = std::min<std::size_t>(
      spare_drains_[slots], placement_.classes[slots].window[static_cast<std::size_t>(Tier::pinned)]);
  std::size_t younger = 0;
  for (std::size_t i = drains_.size(); i-- > 0;) {
    if (drains_[i].key == key) return 3 * younger < 2 * most;
    younger += class_of_[index(drains_[i].key)] == slots ? 1 : 0;
  }
  return false;
}

Status ChunkManager::settle(std::size_t i) {
  const CopyKey key = drains_[i].key;
  Status status = submit_when_final(drains_[i]);
  (void)pump();  // what was written with it goes beside it; what fails of that is told when it is settled
  if (status.is_ok()) status = await(drains_[i].ticket);
  drains_.erase(drains_.begin() + static_cast<std::ptrdiff_t>(i));
  become(key, Tier::pinned, status.is_ok() ? Residency::clean : Residency::dirty);
  become(key, Tier::nvme, status.is_ok() ? Residency::clean : Residency::absent);
  return status.is_ok() ? status : status.annotate(str("writing back ", describe(key)));
}

Status ChunkManager::settle_key(CopyKey key) {
  for (std::size_t i = 0; i < drains_.size(); ++i)
    if (drains_[i].key == key) return settle(i);
  return Status::ok();
}

Status ChunkManager::settle_all() {
  while (!drains_.empty()) STRATA_TRY(settle(0));
  return Status::ok();
}

void ChunkManager::stand_down() noexcept {
  for (std::size_t i = 0; i < copies_.size(); ++i)
    for (const Tier tier : kMemoryTiers) (void)arrive(key_of(static_cast<std::int32_t>(i)), tier);
  while (!drains_.empty()) (void)settle(0);
}

Status ChunkManager::guard(CopyKey key) {
  STRATA_TRY(accept(key));
  STRATA_TRY(quiesce(key));
  STRATA_TRY(send_home(key));  // where a write has failed before
  STRATA_TRY(settle_key(key));
  guarded_[index(key)] = true;
  return Status::ok();
}

Status ChunkManager::accept(CopyKey key) {
  if (!guarded(key)) return Status::ok();
  STRATA_TRY(quiesce(key));
  mover_.accept(key);
  guarded_[index(key)] = false;
  return Status::ok();
}

void ChunkManager::restore(CopyKey key) noexcept {
  if (!guarded(key)) return;
  (void)settle_key(key);
  for (const Tier tier : kMemoryTiers) {
    (void)arrive(key, tier);
    if (valid(key, tier)) (void)leave(key, tier);  // at rest, so it cannot fail
  }
  mover_.restore(key);
  guarded_[index(key)] = false;
  if (valid(key, Tier::nvme)) return;
  become(key, Tier::nvme, Residency::filling);
  become(key, Tier::nvme, Residency::clean);
}

Status ChunkManager::drop(CopyKey key) {
  STRATA_TRY(accept(key));
  if (copy(key, Tier::pinned).state == Residency::draining) STRATA_TRY(settle_key(key));
  for (std::size_t t = 0; t < kTiers; ++t)
    if (valid(key, static_cast<Tier>(t))) STRATA_TRY(leave(key, static_cast<Tier>(t)));
  return Status::ok();
}

}  // namespace strata
