#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include <strata/chunk/layout.h>
#include <strata/chunk/mover.h>
#include <strata/chunk/payload_notes.h>
#include <strata/chunk/pending_fetches.h>
#include <strata/chunk/placement.h>
#include <strata/chunk/residency_table.h>
#include <strata/chunk/slot_pool.h>
#include <strata/chunk/use_schedule.h>
#include <strata/chunk/write_back_queue.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/memory/budget.h>

namespace strata {

class ChunkManager;

/// Keeps one payload of one chunk resident in one tier: while the pin lives, the copy is not moved, evicted
/// or freed. The last use is whatever was queued on the pin's stream before the pin was destroyed; destroying
/// it does not block. Move-only.
class ChunkPin {
 public:
  ChunkPin() = default;
  ChunkPin(ChunkPin&& other) noexcept { swap(other); }
  ChunkPin& operator=(ChunkPin&& other) noexcept {
    ChunkPin taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~ChunkPin();
  BufferView view() const noexcept { return view_; }  ///< valid while the pin lives
  PayloadKey key() const noexcept { return key_; }
  explicit operator bool() const noexcept { return manager_ != nullptr; }

 private:
  friend class ChunkManager;
  void swap(ChunkPin& other) noexcept {
    std::swap(manager_, other.manager_);
    std::swap(key_, other.key_);
    std::swap(tier_, other.tier_);
    std::swap(intent_, other.intent_);
    std::swap(stream_, other.stream_);
    std::swap(view_, other.view_);
    std::swap(before_, other.before_);
  }
  ChunkManager* manager_ = nullptr;
  PayloadKey key_;
  Tier tier_ = Tier::device;
  Intent intent_ = Intent::read;
  Stream* stream_ = nullptr;
  BufferView view_;
  Event before_;  ///< where the stream was when the pin began, if notes are taken
};

/// Tracks where every payload of every chunk is and has it moved to where it is needed.
///
/// One thread calls it, in schedule order. All decisions (which slot, which victim, when to write back)
/// depend on that order alone and never on how far queued work has progressed, so a dry run on the null
/// backend makes exactly the decisions of the real run. Synchronization is left to streams and fences; the
/// caller itself waits only for the NVMe tier.
///
/// Invariant: a copy in device or pinned memory is not absent if and only if it has a slot, apart from homes,
/// which always have one.
class ChunkManager {
 public:
  /// Carves homes and windows out of `slabs` and charges them to `budgets` for the life of the manager. All
  /// references must outlive it, and so must `trace`, which gets PayloadNotes; null: none. Errors: `invalid`
  /// for wrong slab sizes, `does_not_fit`, those of Placement::check().
  static Result<std::unique_ptr<ChunkManager>> create(const ChunkLayout& layout, const Placement& placement,
                                                      UseSchedule& uses, const SlotPool::Slabs& slabs,
                                                      Backend& backend, Mover& mover,
                                                      const std::array<Budget*, kTiers>& budgets,
                                                      Trace* trace = nullptr);

  /// Makes `key` resident in `tier` (device or pinned) for work queued on `stream` from now on. It may begin
  /// transfers, and waits for those from nvme. Counts as the use at the schedule's position. Errors:
  /// `does_not_fit` if every slot of its class is pinned; those of the transfers involved.
  Result<ChunkPin> pin(PayloadKey key, Tier tier, Intent intent, Stream& stream);

  /// The first failure that the end of a pin could not return. It means that the end of that pin's work is
  /// unknown, so later work could not be ordered after it: from then on all pins and transfers are refused
  /// with this Status.
  const Status& status() const noexcept { return failed_; }

  /// Begins to make `key` resident in `tier`, unless that would evict something needed sooner or a recent
  /// write-back. Returns true if the payload is there or its fetch has begun. A prefetch from nvme to the
  /// device waits for the nvme read.
  Result<bool> prefetch(PayloadKey key, Tier tier);

  /// Begins to write the newest contents to the payload's home, unless they are there already. The number of
  /// pending nvme writes is bounded by the spare slots; when there is none left, this waits for the oldest
  /// write.
  Status write_back(PayloadKey key);

  /// Takes a snapshot: the stored contents of `key`, whose home is nvme, are kept in addition to later
  /// write-backs until commit(), rollback() or the next snapshot(). Writes the newest contents back first if
  /// needed. Errors: those of pending transfers; then there is no snapshot.
  Status snapshot(PayloadKey key);
  /// Waits for pending transfers of the key, then discards the snapshot. Does nothing without a snapshot.
  /// Errors: those of the transfers.
  Status commit(PayloadKey key);
  /// Makes the snapshot the newest contents again. Later contents are dropped, and errors of writing them are
  /// ignored. Does nothing without a snapshot. The key must not be pinned.
  void rollback(PayloadKey key) noexcept;

  /// Declares the contents dead and frees all slots except the home. The payload must not be pinned.
  Status drop(PayloadKey key);
  /// Makes the contents of `from` in `tier` the newest contents of `to`, which has the same size and its home
  /// in `tier`. The two exchange slots, nothing is copied, and `from` is dropped. Neither may be pinned.
  /// Errors: `internal` if `from` is not in `tier`; those of pending transfers, in which case nothing has
  /// changed.
  Status transfer(PayloadKey from, PayloadKey to, Tier tier);
  /// Releases the copy in `tier`, which must not be its home; writes it back first if it is the newest.
  Status evict(PayloadKey key, Tier tier);

  /// For use after a failure elsewhere: waits for all pending transfers and discards their errors, so that no
  /// later, unrelated call returns them. A read or write that failed is as if it had never begun.
  void abort_pending() noexcept;

  /// The pending nvme writes, which the caller pumps and waits for; only the manager begins them.
  WriteBackQueue& write_backs() noexcept { return write_backs_; }
  const ResidencyTable& residency() const noexcept { return residency_; }
  const SlotPool& slots() const noexcept { return slots_; }

 private:
  friend class ChunkPin;

  ChunkManager(const Placement& placement, UseSchedule& uses, SlotPool slots, std::size_t n_chunks,
               Backend& backend, Mover& mover, Trace* trace);
  void unpin(const ChunkPin& pin) noexcept;
  Status make_ready(PayloadKey key, Tier tier, Intent intent, Stream& stream);
  Result<bool> fetch(PayloadKey key, Tier tier, std::int32_t needed_at);
  Result<bool> fetch_from_nvme(PayloadKey key, std::int32_t needed_at);
  Result<bool> fetch_from_memory(PayloadKey key, Tier from, Tier to, std::int32_t needed_at);
  Result<bool> acquire_slot(PayloadKey key, Tier tier, std::int32_t needed_at);
  void release_slot_if_absent(PayloadKey key, Tier tier) noexcept;
  Status release_copy(PayloadKey key, Tier tier);
  void make_newest(PayloadKey key, Tier tier);
  Status quiesce(PayloadKey key);
  std::size_t slot_bytes(PayloadKey key) const noexcept {
    return placement_.classes[slots_.class_of(key)].slot_bytes;
  }

  const Placement& placement_;
  UseSchedule& uses_;
  Backend& backend_;
  Mover& mover_;
  PayloadNotes notes_;
  ResidencyTable residency_;
  SlotPool slots_;
  WriteBackQueue write_backs_;
  PendingFetches fetches_;
  Status failed_;  // the first failure that a destructor could not return
};

}  // namespace strata
