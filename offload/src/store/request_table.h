#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include <strata/runtime/io/io_ticket.h>
#include <strata/runtime/status.h>

#include "store/io/io_backend.h"
#include "store/slot_allocator.h"

namespace strata::detail {

/// A request of a store, from its submission to its end.
struct StoreRequest {
  std::uint64_t sequence = 0;
  bool active = false;
  bool write = false;
  bool starved = false;  // a write that waits for another slot
  bool reread = false;
  std::uint64_t id = 0;
  std::uint64_t generation = 0;
  SlotIndex slot = kNoSlot;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::uint32_t crc = 0;  // reads only: the CRC of the whole object, as published
  std::int64_t begin_ns = 0;
  std::vector<Extent> extents;  // the extents of the slot; capacity for one per file
  Status first_failure;         // writes only: why it was moved to another slot
};

/// The requests in flight, in entries that are reused, and the outcome of every earlier request. A sequence
/// number is given once, so a ticket stays valid after its entry was reused. Guarded by its owner; allocates
/// only in its constructor and for failures.
class RequestTable {
 public:
  RequestTable(std::uint32_t max_requests, std::size_t n_files);

  bool is_full() const noexcept { return idle_.empty(); }
  bool is_idle() const noexcept { return idle_.size() == requests_.size(); }
  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(requests_.size()); }
  StoreRequest& operator[](std::uint32_t index) noexcept { return requests_[index]; }

  /// Requires that the table is not full. What begin() is not given is set by the caller.
  IoTicket begin(bool write, std::uint64_t id, std::byte* data, std::size_t bytes, std::int64_t now_ns);
  void end(std::uint32_t index, const Status& outcome);

  bool is_in_flight(IoTicket ticket) const noexcept;
  /// The outcome of a request that has ended. Errors: `invalid` if there was no such request.
  Status outcome(IoTicket ticket) const;
  const StoreRequest& oldest() const noexcept;  ///< the oldest request in flight
  std::uint64_t n_ended() const noexcept { return n_ended_; }

 private:
  std::vector<StoreRequest> requests_;
  std::vector<std::uint32_t> idle_;
  std::uint64_t last_sequence_ = 0;
  std::uint64_t n_ended_ = 0;
  // Keyed by sequence number, for late calls of outcome().
  std::unordered_map<std::uint64_t, Status> failures_;
};

}  // namespace strata::detail
