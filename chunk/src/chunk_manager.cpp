#include <strata/chunk/chunk_manager.h>

#include <optional>

#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

#include "describe.h"
#include "eviction.h"
#include "fence_wait.h"

// Note [decisions]: nothing here may branch on how far queued work has progressed, because that is what makes
// a dry run on the null backend a proof. The only use of `is_complete` is in WriteBackQueue::pump(), where it
// merely lets a write be submitted a little earlier.

namespace strata {

using detail::describe;

ChunkPin::~ChunkPin() {
  if (manager_ != nullptr) manager_->unpin(*this);
}

ChunkManager::ChunkManager(const Placement& placement, UseSchedule& uses, SlotPool slots,
                           std::size_t n_chunks, Backend& backend, Mover& mover, Trace* trace)
    : placement_(placement),
      uses_(uses),
      backend_(backend),
      mover_(mover),
      notes_(trace),
      residency_(n_chunks, &notes_),
      slots_(std::move(slots)),
      write_backs_(placement, residency_, slots_, backend, mover, &notes_),
      fetches_(residency_, slots_, write_backs_, backend, mover, &notes_) {}

Result<std::unique_ptr<ChunkManager>> ChunkManager::create(
    const ChunkLayout& layout, const Placement& placement, UseSchedule& uses, const SlotPool::Slabs& slabs,
    Backend& backend, Mover& mover, const std::array<Budget*, kTiers>& budgets, Trace* trace) {
  STRATA_TRY(placement.check(layout));
  STRATA_TRY_ASSIGN(SlotPool slots, SlotPool::create(layout, placement, slabs, budgets));
  return std::unique_ptr<ChunkManager>(
      new ChunkManager(placement, uses, std::move(slots), layout.n_chunks(), backend, mover, trace));
}

// --- slots ---

// Gives the key a slot, if necessary by evicting the copy whose next use is latest and later than
// `needed_at`.
Result<bool> ChunkManager::acquire_slot(PayloadKey key, Tier tier, std::int32_t needed_at) {
  if (slots_.acquire(key, tier)) return true;
  const std::optional<PayloadKey> victim =
      detail::choose_victim({placement_, uses_, residency_, slots_, write_backs_}, key, tier, needed_at);
  if (!victim) return false;
  STRATA_TRY(evict(*victim, tier));
  return slots_.acquire(key, tier);
}

// Undoes acquire_slot() if the transfer it was for has failed, or frees the slot of a copy that became stale.
void ChunkManager::release_slot_if_absent(PayloadKey key, Tier tier) noexcept {
  if (!residency_.has_copy(key, tier)) slots_.release(key, tier);
}

// Releases the copy, and its slot unless it is a home.
Status ChunkManager::release_copy(PayloadKey key, Tier tier) {
  STRATA_ASSERT(!residency_.is_pinned(key, tier), describe(key), " is pinned in ", to_string(tier),
                " and cannot be released");
  if (residency_.state(key, tier) == Residency::writing_back) STRATA_TRY(write_backs_.wait(key));
  STRATA_TRY(fetches_.complete(key, tier));
  residency_.set_state(key, tier, Residency::absent);
  slots_.release(key, tier);
  return Status::ok();
}

// Makes the copy in `tier` the newest and only one.
void ChunkManager::make_newest(PayloadKey key, Tier tier) {
  residency_.make_newest(key, tier);
  for (const Tier memory_tier : kMemoryTiers) release_slot_if_absent(key, memory_tier);
}

Status ChunkManager::evict(PayloadKey key, Tier tier) {
  STRATA_ASSERT(placement_.home(key) != tier, describe(key), " cannot be evicted from its home in ",
                to_string(tier));
  if (residency_.state(key, tier) == Residency::dirty) STRATA_TRY(write_back(key));
  if (!residency_.has_copy(key, tier)) return Status::ok();
  STRATA_ASSERT(residency_.has_copy_outside(key, tier), describe(key), " would be lost if evicted from ",
                to_string(tier));
  return release_copy(key, tier);
}

Status ChunkManager::drop(PayloadKey key) {
  STRATA_TRY(commit(key));
  if (residency_.state(key, Tier::pinned) == Residency::writing_back) STRATA_TRY(write_backs_.wait(key));
  for (const Tier tier : kAllTiers)
    if (residency_.has_copy(key, tier)) STRATA_TRY(release_copy(key, tier));
  return Status::ok();
}

Status ChunkManager::transfer(PayloadKey from, PayloadKey to, Tier tier) {
  STRATA_ASSERT(slots_.class_of(from) == slots_.class_of(to) && placement_.home(to) == tier, describe(from),
                " cannot be transferred to ", describe(to), " in ", to_string(tier));
  if (!residency_.has_copy(from, tier))
    return Status::error(Code::internal, str(describe(from), " is not in ", to_string(tier)));
  STRATA_TRY(quiesce(from));
  STRATA_TRY(quiesce(to));
  slots_.exchange(from, to, tier);
  notes_.transfer(from, to, tier);
  make_newest(to, tier);
  return drop(from);  // nothing is pending, so it cannot fail
}

// --- transfers ---

Result<bool> ChunkManager::prefetch(PayloadKey key, Tier tier) {
  STRATA_TRY(failed_);
  return fetch(key, tier, uses_.next_use(key, tier));
}

Result<bool> ChunkManager::fetch(PayloadKey key, Tier tier, std::int32_t needed_at) {
  if (residency_.has_copy(key, tier)) return true;
  const Tier other = tier == Tier::device ? Tier::pinned : Tier::device;
  if (residency_.has_copy(key, other)) return fetch_from_memory(key, other, tier, needed_at);
  if (!residency_.has_copy(key, Tier::nvme))
    return Status::error(
        Code::internal,
        str(describe(key), " is not stored in any tier and cannot be fetched to ", to_string(tier)));
  STRATA_TRY_ASSIGN(const bool begun, fetch_from_nvme(key, needed_at));  // always to pinned memory
  if (!begun || tier == Tier::pinned) return begun;
  return fetch_from_memory(key, Tier::pinned, tier, needed_at);
}

Result<bool> ChunkManager::fetch_from_nvme(PayloadKey key, std::int32_t needed_at) {
  STRATA_TRY_ASSIGN(const bool room, acquire_slot(key, Tier::pinned, needed_at));
  if (!room) return false;
  Status status = fetches_.begin_read(key);
  if (status.is_ok()) return true;
  release_slot_if_absent(key, Tier::pinned);
  return status;
}

Result<bool> ChunkManager::fetch_from_memory(PayloadKey key, Tier from, Tier to, std::int32_t needed_at) {
  residency_.pin(key, from, Intent::read);  // keeps the source resident while room is made
  Result<bool> room = acquire_slot(key, to, needed_at);
  Status status = room.status();
  if (status.is_ok() && *room) status = fetches_.complete(key, from);
  residency_.unpin(key, from, Intent::read);
  if (status.is_ok() && *room) status = fetches_.begin_copy(key, from, to);
  if (status.is_ok()) return room;
  release_slot_if_absent(key, to);
  return status;
}

// Waits until no fetch or write-back of the key is pending, so that releasing its copies cannot fail.
Status ChunkManager::quiesce(PayloadKey key) {
  STRATA_TRY(write_backs_.wait(key));
  for (const Tier tier : kMemoryTiers) STRATA_TRY(fetches_.complete(key, tier));
  return Status::ok();
}

void ChunkManager::abort_pending() noexcept {
  for (std::size_t i = 0; i < residency_.n_keys(); ++i)
    for (const Tier tier : kMemoryTiers) (void)fetches_.complete(key_at(i), tier);
  write_backs_.drain();
}

// --- pins ---

// Makes the payload resident, completes its fetch, and makes `stream` wait for the earlier work on its
// memory.
Status ChunkManager::make_ready(PayloadKey key, Tier tier, Intent intent, Stream& stream) {
  constexpr std::int32_t kNow = UseSchedule::kImmediately;
  if (intent != Intent::read) STRATA_TRY(quiesce(key));
  STRATA_TRY_ASSIGN(const bool room,
                    intent == Intent::overwrite ? acquire_slot(key, tier, kNow) : fetch(key, tier, kNow));
  if (!room)
    return Status::error(
        Code::does_not_fit,
        str(describe(key), " needs a slot of ", slot_bytes(key), " bytes in ", to_string(tier), ", but all ",
            slots_.slots(tier, slots_.class_of(key, tier)).size(), " slots are pinned or are homes"));
  STRATA_TRY(fetches_.complete(key, tier));
  const PayloadSlot& slot = slots_.slot(key, tier);
  STRATA_TRY(detail::wait_on_async(slot.written, stream, backend_));
  return intent == Intent::read ? Status::ok() : detail::wait_on_async(slot.read, stream, backend_);
}

Result<ChunkPin> ChunkManager::pin(PayloadKey key, Tier tier, Intent intent, Stream& stream) {
  STRATA_ASSERT(tier != Tier::nvme, "payloads cannot be pinned on nvme");
  STRATA_ASSERT(!residency_.is_pinned_for_writing(key, tier) &&
                    (intent == Intent::read || !residency_.is_pinned(key, tier)),
                describe(key), " is pinned in ", to_string(tier),
                " for writing, or a pin for writing was requested while it is pinned");
  STRATA_TRY(failed_);
  if (Status status = make_ready(key, tier, intent, stream); !status.is_ok()) {
    release_slot_if_absent(key, tier);
    return status;
  }
  if (intent != Intent::read) make_newest(key, tier);
  uses_.mark_used(key);
  residency_.pin(key, tier, intent);
  ChunkPin pin;
  pin.manager_ = this;
  pin.key_ = key;
  pin.tier_ = tier;
  pin.intent_ = intent;
  pin.stream_ = &stream;
  pin.view_ = slots_.slot(key, tier).view;
  if (notes_.enabled())  // an error is that of the pin's end
    if (const Result<Event> before = backend_.record(stream); before.has_value()) pin.before_ = *before;
  return pin;
}

void ChunkManager::unpin(const ChunkPin& pin) noexcept {
  residency_.unpin(pin.key_, pin.tier_, pin.intent_);
  const Result<Event> last = backend_.record(*pin.stream_);
  if (!last.has_value()) {
    if (failed_.is_ok()) failed_ = last.status();
    return;
  }
  if (pin.before_.stream >= 0) notes_.use(pin.key_, pin.tier_, pin.intent_, pin.before_, *last);
  PayloadSlot& slot = slots_.slot(pin.key_, pin.tier_);
  if (pin.intent_ == Intent::read)
    slot.add_reader(pin.stream_->role(), *last);
  else
    slot.set_writer(pin.stream_->role(), *last);  // it has waited for all earlier work
}

// --- homes ---

Status ChunkManager::write_back(PayloadKey key) {
  constexpr std::int32_t kNow = UseSchedule::kImmediately;
  STRATA_TRY(failed_);
  const std::optional<Tier> home = placement_.home(key);
  if (!home || residency_.has_copy(key, *home)) return Status::ok();
  const bool on_device = residency_.has_copy(key, Tier::device);
  const bool in_pinned = residency_.has_copy(key, Tier::pinned);
  if (!on_device && !in_pinned)
    return Status::error(Code::internal,
                         str(describe(key), " is not stored in any tier and cannot be written back"));
  if (*home == Tier::device) {
    STRATA_TRY_ASSIGN(const bool begun, fetch(key, Tier::device, kNow));
    STRATA_ASSERT(begun, describe(key), " has no slot in its home tier");
  } else if (!in_pinned) {
    STRATA_TRY_ASSIGN(const bool begun, fetch(key, Tier::pinned, kNow));
    if (!begun)
      return Status::error(Code::does_not_fit,
                           str(describe(key), " could not get the pinned slot that it needs on its way to ",
                               to_string(*home)));
  }
  if (*home == Tier::nvme) {
    STRATA_TRY(write_backs_.wait_for_spare(key));
    STRATA_TRY(fetches_.complete(key, Tier::pinned));
    write_backs_.push(key, uses_.n_positions());
    return Status::ok();
  }
  STRATA_TRY(fetches_.complete(key, *home));
  residency_.clean_copies_outside(key, *home);
  return Status::ok();
}

Status ChunkManager::snapshot(PayloadKey key) {
  STRATA_TRY(commit(key));
  STRATA_TRY(quiesce(key));
  STRATA_TRY(write_back(key));  // for the case that an earlier write has failed
  STRATA_TRY(write_backs_.wait(key));
  residency_.set_snapshot(key, true);
  return Status::ok();
}

Status ChunkManager::commit(PayloadKey key) {
  if (!residency_.has_snapshot(key)) return Status::ok();
  STRATA_TRY(quiesce(key));
  mover_.commit(key);
  residency_.set_snapshot(key, false);
  return Status::ok();
}

void ChunkManager::rollback(PayloadKey key) noexcept {
  if (!residency_.has_snapshot(key)) return;
  (void)write_backs_.wait(key);
  for (const Tier tier : kMemoryTiers) {
    (void)fetches_.complete(key, tier);
    if (residency_.has_copy(key, tier)) (void)release_copy(key, tier);  // nothing is pending: cannot fail
  }
  mover_.rollback(key);
  residency_.set_snapshot(key, false);
  if (residency_.has_copy(key, Tier::nvme)) return;
  residency_.set_state(key, Tier::nvme, Residency::filling);
  residency_.set_state(key, Tier::nvme, Residency::clean);
}

}  // namespace strata
