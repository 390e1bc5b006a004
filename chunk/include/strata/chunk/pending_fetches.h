#pragma once

#include <vector>

#include <strata/chunk/mover.h>
#include <strata/chunk/residency_table.h>
#include <strata/chunk/slot_pool.h>
#include <strata/chunk/write_back_queue.h>
#include <strata/runtime/backend/backend.h>

namespace strata {

/// The transfers that fill slots and are not complete: copies between device and pinned memory, and reads
/// from nvme into pinned memory. Whoever begins one has acquired the slot.
///
/// Invariant: a transfer is pending exactly while the copy that it makes is `filling`; a transfer that cannot
/// begin, or a read that fails, leaves that copy absent.
class PendingFetches {
 public:
  /// All references must outlive the fetches, and so must `notes` of what they move, which may be null.
  PendingFetches(ResidencyTable& residency, SlotPool& slots, WriteBackQueue& write_backs, Backend& backend,
                 Mover& mover, PayloadNotes* notes = nullptr);

  /// Queues the copy of `key` from one memory tier to the other, after the earlier work on both slots.
  Status begin_copy(PayloadKey key, Tier from, Tier to);
  /// Begins the read from nvme into pinned memory, after waiting for the earlier work on the slot.
  Status begin_read(PayloadKey key);
  /// Makes the copy in `tier` clean if it is filling. For a copy between memories the decisions end here, and
  /// its users wait on the slot's fence; for a read from nvme the caller waits here. A read that failed
  /// releases its slot.
  Status complete(PayloadKey key, Tier tier);

 private:
  Status finish_read(PayloadKey key);

  ResidencyTable& residency_;
  SlotPool& slots_;
  WriteBackQueue& write_backs_;
  Backend& backend_;
  Mover& mover_;
  PayloadNotes* const notes_;
  std::vector<IoTicket> reads_;  // indexed by key; valid while a read into pinned memory is pending
};

}  // namespace strata
