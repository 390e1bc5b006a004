#include <strata/chunk/chunk_manager.h>

#include <algorithm>

#include <strata/runtime/assert.h>
#include <strata/runtime/trace/stall_meter.h>
#include <strata/runtime/str.h>

#include "describe.h"

// Note [decisions]: nothing here may branch on how far queued work has progressed, because that is what makes
// a dry run on the null backend a proof. The only use of `is_complete` is in pump(), where it merely lets a
// write be submitted a little earlier.

namespace strata {

using detail::describe;
using detail::kImmediately;
using detail::kMemoryTiers;
using detail::kNever;

ChunkPin::~ChunkPin() {
  if (manager_ != nullptr) manager_->unpin(*this);
}

ChunkManager::ChunkManager(const ChunkLayout& layout, const Placement& placement, Backend& backend,
                           Mover& mover, std::array<Budget*, kTiers> budgets)
    : layout_(layout), placement_(placement), backend_(backend), mover_(mover), budgets_(budgets) {}

ChunkManager::~ChunkManager() {
  for (const auto& tiers : copies_)
    for (const Copy& copy : tiers)
      STRATA_ASSERT(copy.pins == 0, "a chunk manager is destroyed while a pin is alive");
}

Result<std::unique_ptr<ChunkManager>> ChunkManager::create(const ChunkLayout& layout,
                                                           const Placement& placement, const Slabs& slabs,
                                                           Backend& backend, Mover& mover,
                                                           std::array<Budget*, kTiers> budgets) {
  std::unique_ptr<ChunkManager> manager(new ChunkManager(layout, placement, backend, mover, budgets));
  STRATA_TRY(manager->initialize(slabs));
  return manager;
}

void ChunkManager::set_state(PayloadKey key, Tier tier, Residency to) {
  Residency& state = copy(key, tier).state;
  STRATA_ASSERT(is_valid_transition(state, to), describe(key), " in ", to_string(tier),
                " cannot change from state ", to_string(state), " to ", to_string(to));
  state = to;
}

void ChunkManager::set_schedule(std::span<const Use> uses, std::int32_t cycle) {
  for (auto& positions : uses_)
    for (auto& list : positions) list.clear();
  for (const Use& use : uses)
    if (use.tier != Tier::nvme)
      uses_[index(use.key)][static_cast<std::size_t>(use.tier)].push_back(use.position);
  cycle_ = cycle;
  set_position(0);
}

std::int32_t ChunkManager::next_use(PayloadKey key, Tier tier) const noexcept {
  const auto& positions = uses_[index(key)][static_cast<std::size_t>(tier)];
  if (positions.empty()) return kNever;
  // A use at this position is pending until its pin: a payload fetched for it must not be evicted before.
  const bool made = copy(key, tier).last_used_epoch == epoch_;
  const auto next = made ? std::upper_bound(positions.begin(), positions.end(), position_)
                         : std::lower_bound(positions.begin(), positions.end(), position_);
  return next != positions.end() ? *next : positions.front() + cycle_;
}

Status ChunkManager::wait_on(const Fence& fence, Stream& stream) {
  for (const Event& event : fence.events)
    if (event.stream >= 0 && event.stream != stream.id()) STRATA_TRY(backend_.wait_on_async(event, stream));
  return Status::ok();
}

Status ChunkManager::wait_on_host(const Fence& fence) {
  for (const Event& event : fence.events)
    if (event.stream >= 0) STRATA_TRY(backend_.wait(event));
  return Status::ok();
}

// --- transfers ---

// Marks a pending fetch as complete. For a copy over the link the decisions end here, and its users wait on
// the slot's fence; for a read from nvme the caller waits here.
Status ChunkManager::complete_fetch(PayloadKey key, Tier tier) {
  Copy& fetched = copy(key, tier);
  if (fetched.state != Residency::filling) return Status::ok();
  if (fetched.fetch_ticket.valid()) {
    const Status status = await(std::exchange(fetched.fetch_ticket, IoTicket{}));
    if (!status.is_ok()) {
      set_state(key, tier, Residency::absent);
      release_slot(key, tier);
      return status.annotate(str("fetching ", describe(key)));
    }
    const BufferView view = slot(key, tier).view;
    STRATA_TRY(backend_.host_access({view.data, view.bytes, true}));
  }
  set_state(key, tier, Residency::clean);
  return Status::ok();
}

Status ChunkManager::copy_between(PayloadKey key, Tier from, Tier to) {
  STRATA_ASSERT(!copy(key, from).written, describe(key), " is being copied from ", to_string(from),
                " while it is being written there");
  Slot& src = slot(key, from);
  Slot& dst = slot(key, to);
  Fence after = dst.written;
  after.join(dst.read);
  after.join(src.written);
  const Direction direction = to == Tier::device ? Direction::h2d : Direction::d2h;
  Event done;
  if (const Status status = mover_.copy_async(dst.view, src.view, direction, after, done); !status.is_ok())
    return status.annotate(str("copying ", describe(key)));
  const StreamRole role = direction == Direction::h2d ? StreamRole::h2d : StreamRole::d2h;
  dst.written.clear();
  dst.read.clear();
  dst.written.add(role, done);
  src.read.add(role, done);
  counters_.copied_bytes[static_cast<std::size_t>(direction)] += src.view.bytes;
  return Status::ok();
}

Result<bool> ChunkManager::fetch(PayloadKey key, Tier tier, std::int32_t needed_at) {
  if (valid(key, tier)) return true;
  const Tier other = tier == Tier::device ? Tier::pinned : Tier::device;
  if (!valid(key, other) && !valid(key, Tier::nvme))
    return Status::error(
        Code::internal,
        str(describe(key), " is not stored in any tier and cannot be fetched to ", to_string(tier)));

  if (tier == Tier::device ||
      valid(key, other)) {  // copied over the link; from nvme it goes through pinned memory
    if (!valid(key, other)) {
      STRATA_TRY_ASSIGN(const bool begun, fetch(key, Tier::pinned, needed_at));
      if (!begun) return false;
    }
    ++copy(key, other).pins;  // keeps the source resident while room is made
    Result<bool> room = acquire_slot(key, tier, needed_at);
    Status status = room.status();
    if (status.is_ok() && *room) status = complete_fetch(key, other);
    --copy(key, other).pins;
    if (status.is_ok() && *room) status = copy_between(key, other, tier);
    if (!status.is_ok()) {
      release_unfilled_slot(key, tier);
      return status;
    }
    if (!*room) return false;
    set_state(key, tier, Residency::filling);
    ++counters_.fetches;
    return true;
  }
  STRATA_TRY_ASSIGN(const bool room, acquire_slot(key, tier, needed_at));
  if (!room) return false;
  if (const Status status = begin_read(key, tier); !status.is_ok()) {
    release_unfilled_slot(key, tier);
    return status.annotate(str("fetching ", describe(key)));
  }
  set_state(key, tier, Residency::filling);
  counters_.read_bytes += slot_bytes(key);
  ++counters_.fetches;
  return true;
}

Status ChunkManager::begin_read(PayloadKey key, Tier tier) {
  Slot& dst = slot(key, tier);
  STRATA_TRY(wait_on_host(dst.written));
  STRATA_TRY(wait_on_host(dst.read));
  STRATA_TRY(backend_.host_access({dst.view.data, dst.view.bytes, true}));
  STRATA_TRY_ASSIGN(copy(key, tier).fetch_ticket, mover_.read_async(key, dst.view));
  dst.written.clear();
  dst.read.clear();
  return Status::ok();
}

Result<bool> ChunkManager::prefetch(PayloadKey key, Tier tier) {
  STRATA_TRY(failed_);
  return fetch(key, tier, next_use(key, tier));
}

// --- pins ---

// Waits until no fetch or write-back of the key is pending, so that releasing its copies cannot fail.
Status ChunkManager::quiesce(PayloadKey key) {
  STRATA_TRY(wait_write_back(key));
  for (const Tier tier : kMemoryTiers) STRATA_TRY(complete_fetch(key, tier));
  return Status::ok();
}

// Makes the copy in `tier` the newest and only one.
void ChunkManager::invalidate_other_copies(PayloadKey key, Tier tier) {
  if (copy(key, tier).state != Residency::dirty) set_state(key, tier, Residency::dirty);
  for (std::size_t t = 0; t < kTiers; ++t)
    if (const Tier other = static_cast<Tier>(t); other != tier && valid(key, other)) {
      STRATA_ASSERT(copy(key, other).pins == 0, describe(key), " is pinned in ", to_string(other),
                    " and cannot be written in ", to_string(tier));
      set_state(key, other, Residency::absent);
      release_slot(key, other);
    }
  ++generation_[index(key)];
}

// Makes the payload resident, completes its fetch, and makes `stream` wait for the earlier work on its
// memory.
Status ChunkManager::make_ready(PayloadKey key, Tier tier, Intent intent, Stream& stream) {
  if (intent != Intent::read) STRATA_TRY(quiesce(key));
  STRATA_TRY_ASSIGN(const bool room, intent == Intent::overwrite ? acquire_slot(key, tier, kImmediately)
                                                                 : fetch(key, tier, kImmediately));
  if (!room)
    return Status::error(
        Code::does_not_fit,
        str(describe(key), " needs a slot of ", slot_bytes(key), " bytes in ", to_string(tier), ", but all ",
            pool(key, tier).slots.size(), " slots are pinned or are homes"));
  STRATA_TRY(complete_fetch(key, tier));
  STRATA_TRY(wait_on(slot(key, tier).written, stream));
  return intent == Intent::read ? Status::ok() : wait_on(slot(key, tier).read, stream);
}

Result<ChunkPin> ChunkManager::pin(PayloadKey key, Tier tier, Intent intent, Stream& stream) {
  STRATA_ASSERT(tier != Tier::nvme, "payloads cannot be pinned on nvme");
  Copy& held = copy(key, tier);
  STRATA_ASSERT(!held.written && (intent == Intent::read || held.pins == 0), describe(key), " is pinned in ",
                to_string(tier), " for writing, or a pin for writing was requested while it is pinned");
  STRATA_TRY(failed_);
  if (const Status status = make_ready(key, tier, intent, stream); !status.is_ok()) {
    release_unfilled_slot(key, tier);
    return status;
  }
  if (intent != Intent::read) invalidate_other_copies(key, tier);
  for (const Tier memory : kMemoryTiers) copy(key, memory).last_used_epoch = epoch_;
  ++held.pins;
  held.written = intent != Intent::read;
  ChunkPin pin;
  pin.manager_ = this;
  pin.key_ = key;
  pin.tier_ = tier;
  pin.intent_ = intent;
  pin.stream_ = &stream;
  pin.view_ = slot(key, tier).view;
  return pin;
}

void ChunkManager::unpin(ChunkPin& pin) noexcept {
  Copy& held = copy(pin.key_, pin.tier_);
  STRATA_ASSERT(held.pins > 0, describe(pin.key_), " is unpinned twice");
  --held.pins;
  held.written = false;
  const Result<Event> last = backend_.record(*pin.stream_);
  if (!last.has_value()) {
    if (failed_.is_ok()) failed_ = last.status();
    return;
  }
  Slot& memory = slot(pin.key_, pin.tier_);
  if (pin.intent_ == Intent::read) {
    memory.read.add(pin.stream_->role(), *last);
    return;
  }
  memory.written.clear();  // the writer has already waited for all of it
  memory.read.clear();
  memory.written.add(pin.stream_->role(), *last);
}

// --- accessors ---

std::uint32_t ChunkManager::generation(PayloadKey key) const noexcept { return generation_[index(key)]; }

std::size_t ChunkManager::used_slots(Tier tier, std::uint32_t slot_class) const noexcept {
  const Pool& slots = pools_[static_cast<std::size_t>(tier)][slot_class];
  return slots.slots.size() - slots.free.size();
}

std::size_t ChunkManager::peak_used_slots(Tier tier, std::uint32_t slot_class) const noexcept {
  return pools_[static_cast<std::size_t>(tier)][slot_class].peak_used;
}

}  // namespace strata
