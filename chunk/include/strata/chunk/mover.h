#pragma once

#include <array>
#include <cstdint>

#include <strata/chunk/types.h>
#include <strata/runtime/backend.h>
#include <strata/runtime/status.h>

namespace strata {

/// Names a request to the slow tier; a default one is complete.
struct IoTicket {
  std::uint32_t index = 0;
  std::uint64_t sequence = 0;
  bool valid() const noexcept { return sequence != 0; }
};

/// Everything that must be over before a piece of memory may be used in some way: at most one point a stream
/// role, since later points of a stream imply the earlier ones.
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

/// Carries out what the chunk manager decides. Declared here and implemented by offload/, so that the arrow
/// between the modules points one way. Called by one thread.
class Mover {
 public:
  virtual ~Mover() = default;
  /// Queues a copy between the device and pinned memory on the lane of `direction`, after `after`; `done`
  /// follows it.
  virtual Status copy_async(BufferView dst, ConstBufferView src, Direction direction, const Fence& after,
                            Event& done) = 0;

  /// Begins writing `src` as the new generation of `key`. The memory must be still and stay so until the
  /// ticket is waited for. The old generation remains readable until then; with `snapshot` it stays beside
  /// the new one until commit() or rollback().
  virtual Result<IoTicket> write_async(PayloadKey key, ConstBufferView src, bool snapshot) = 0;
  virtual Result<IoTicket> read_async(PayloadKey key, BufferView dst) = 0;
  virtual Status wait(IoTicket ticket) = 0;
  /// Waits for so many nanoseconds at most: whether wait() would return at once.
  virtual bool wait_for(IoTicket ticket, std::int64_t ns) = 0;
  /// What was kept of `key`, if anything, is given up, or is what is stored again. Nothing of the key is
  /// under way.
  virtual void commit(PayloadKey key) = 0;
  virtual void rollback(PayloadKey key) = 0;
};

}  // namespace strata
