#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <strata/chunk/mover.h>
#include <strata/chunk/placement.h>
#include <strata/chunk/residency_table.h>
#include <strata/chunk/slot_pool.h>
#include <strata/runtime/backend/backend.h>

namespace strata {

/// The pending writes of pinned copies to their homes on nvme, oldest first. A write is submitted to the
/// Mover once the work that produces the contents is done.
///
/// Invariant: a write is pending exactly while the pinned copy is `writing_back` and the copy on nvme is
/// `filling`; in every class there are at most as many as spare extents. Nothing is allocated after
/// construction.
class WriteBackQueue {
 public:
  /// All references must outlive the queue, and so must `notes` of its writes, which may be null.
  WriteBackQueue(const Placement& placement, ResidencyTable& residency, const SlotPool& slots,
                 Backend& backend, Mover& mover, PayloadNotes* notes = nullptr);

  /// Submits the writes whose contents are final. Cheap; call it often.
  Status pump();
  /// Submits all writes, waiting for the work that produces their contents. The writes continue while the
  /// caller does other things.
  Status submit_all();
  /// Waits for all writes, until one fails.
  Status wait_all();
  /// Waits for all writes and discards their errors.
  void drain() noexcept;
  /// Waits for the write of `key`, if there is one. After a failure the pinned copy is dirty again.
  Status wait(PayloadKey key);

  /// Waits for the oldest write of the class of `key` if every spare extent is in use.
  Status wait_for_spare(PayloadKey key);
  /// Begins the write of the pinned copy of `key`, which is complete and newer than what nvme has, when
  /// `n_positions` positions of the schedule have begun. There must be a spare extent.
  void push(PayloadKey key, std::uint64_t n_positions);
  /// Whether a prefetch should leave the slot of `key` alone, because its write has begun only recently.
  /// A write that was pushed at less than `since` positions is not.
  bool is_recent(PayloadKey key, std::uint64_t since) const noexcept;
  /// Waits for a request to the Mover and pumps meanwhile, so that nvme has both reads and writes to work on.
  Status wait_for_ticket(IoTicket ticket);

 private:
  struct PendingWrite {
    PayloadKey key;
    std::uint64_t n_positions = 0;  ///< when it was pushed
    IoTicket ticket;                ///< valid once submitted
    bool submitted = false;
  };
  struct ClassLimits {
    std::size_t pending = 0;  ///< number of spare extents
    std::size_t recent = 0;   ///< min(pending, slots of the pinned window); two thirds of it count as recent
  };

  Status submit(PendingWrite& write);
  Status submit_when_final(PendingWrite& write);
  Status wait_at(std::size_t i);

  ResidencyTable& residency_;
  const SlotPool& slots_;
  Backend& backend_;
  Mover& mover_;
  PayloadNotes* const notes_;
  std::vector<ClassLimits> limits_;   // indexed by class
  std::vector<PendingWrite> writes_;  // oldest first, capacity fixed
};

}  // namespace strata
