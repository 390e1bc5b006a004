#pragma once

#include <array>
#include <cstdint>

#include <strata/chunk/types.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/io/io_ticket.h>
#include <strata/runtime/status.h>

namespace strata {

/// The events that must have completed before a piece of memory may be used: at most one per stream role,
/// since later points of a stream imply the earlier ones.
struct Fence {
  std::array<Event, kStreamRoles> events{};

  void add(StreamRole role, const Event& event) noexcept {
    Event& held = events[static_cast<std::size_t>(role)];
    if (held.stream < 0 || event.sequence > held.sequence) held = event;
  }
  void join(const Fence& other) noexcept {
    for (std::size_t r = 0; r < kStreamRoles; ++r)
      if (other.events[r].stream >= 0) add(static_cast<StreamRole>(r), other.events[r]);
  }
  void clear() noexcept { events.fill(Event{}); }
};

enum class Direction : std::uint8_t { h2d, d2h };

/// Carries out the transfers that the chunk manager decides on. Declared here and implemented by offload/, so
/// that chunk/ does not depend on offload/. Called by one thread.
class Mover {
 public:
  virtual ~Mover() = default;
  /// Queues a copy between device and pinned memory on the copy stream of `direction`, after the events of
  /// `after`; `done` is set to the event that follows the copy.
  virtual Status copy_async(BufferView dst, ConstBufferView src, Direction direction, const Fence& after,
                            Event& done) = 0;

  /// Begins writing `src` as a new generation of `key`. The memory must not change until the ticket has been
  /// waited for. Until then the old generation remains readable; with `snapshot` it is kept in addition to
  /// the new one until commit() or rollback().
  virtual Result<IoTicket> write_async(PayloadKey key, ConstBufferView src, bool snapshot) = 0;
  virtual Result<IoTicket> read_async(PayloadKey key, BufferView dst) = 0;
  virtual Status wait(IoTicket ticket) = 0;
  /// Waits for at most `ns` nanoseconds; returns whether wait() would return at once.
  virtual bool wait_for(IoTicket ticket, std::int64_t ns) = 0;
  /// End the snapshot of `key`, if there is one: commit() discards the old generation, rollback() makes it
  /// the stored one again. No request for the key may be pending.
  virtual void commit(PayloadKey key) = 0;
  virtual void rollback(PayloadKey key) = 0;
};

}  // namespace strata
