#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/backend/sim_options.h>
#include <strata/runtime/backend/sim_world.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/trace/trace.h>

namespace strata {

/// A simulated machine: in-order queues on a virtual clock. It moves and computes nothing but reports how
/// long that would have taken, and is deterministic. Its backend is a null backend, on which the real
/// scheduler runs, whose events complete in virtual time: a copy takes the time given by its lane's rate, and
/// a call takes its HostCall::paced_ns, whatever its lane. Time advances only while the single thread that
/// uses the simulation queues work or waits.
class Simulation {
 public:
  static std::unique_ptr<Simulation> create(const SimOptions& options);
  /// Simulates one of several ranks. The rank's thread creates, uses and destroys the simulation in its turn.
  static std::unique_ptr<Simulation> create(const SimOptions& options, SimWorld& world, int rank);
  virtual ~Simulation() = default;

  virtual Backend& backend() noexcept = 0;
  virtual Clock& clock() noexcept = 0;
  /// Adds a track per lane to `trace`, which must outlive the simulation, and records from now on. `prefix`:
  /// what their names begin with.
  virtual void set_trace(Trace& trace, std::string_view prefix = {}) = 0;

  /// Queues work of `ns` nanoseconds that begins together with that of other ranks. `label` is a string
  /// literal.
  virtual void meet(StreamRole role, std::int64_t ns, const char* label,
                    std::shared_ptr<SimMeeting> meeting) = 0;
  /// Queues an NVMe request of `bytes` and returns its number on that lane, for wait().
  virtual std::uint64_t request(SimLane lane, std::size_t bytes) = 0;
  virtual void wait(SimLane lane, std::uint64_t number) = 0;
  /// Waits for at most `ns` nanoseconds; returns whether the request is complete.
  virtual bool wait_for(SimLane lane, std::uint64_t number, std::int64_t ns) = 0;
  /// Time this lane has been busy since the simulation began.
  virtual double busy_s(SimLane lane) const noexcept = 0;
  virtual std::uint64_t transferred_bytes(SimLane lane) const noexcept = 0;
};

}  // namespace strata
