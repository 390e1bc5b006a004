#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <strata/runtime/backend.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/trace.h>

namespace strata {

/// The queues of a simulated machine: one a stream role, and both directions of the slow tier.
enum class SimLane : std::uint8_t { compute, h2d, d2h, cpu, collective, nvme_read, nvme_write };
inline constexpr std::size_t kSimLanes = 7;

/// What lanes have in common.
enum class SimResource : std::uint8_t { memory, cores, link, disk };
inline constexpr std::size_t kSimResources = 4;

struct SimOptions {
  struct Rate {
    double bytes_per_s = 0;  ///< 0: it takes no time
    double latency_s = 0;    ///< before it
  };
  std::array<Rate, kSimLanes> rates{};  ///< of copies and of the slow tier; work of other lanes has a price
  /// Share of each resource that a lane's work takes while nothing slows it. Where the shares of several that
  /// are under way add up to more than 1, each goes on in proportion. One alone is slowed by nothing.
  std::array<std::array<double, kSimResources>, kSimLanes> shares{};
  /// That the thread which feeds the queues takes for each piece of work.
  double launch_overhead_s = 0;
  /// Until who had to wait for another lane goes on after its end.
  double wake_s = 0;

  Rate& rate(SimLane lane) noexcept { return rates[static_cast<std::size_t>(lane)]; }
  double& share(SimLane lane, SimResource of) noexcept {
    return shares[static_cast<std::size_t>(lane)][static_cast<std::size_t>(of)];
  }
};

/// A machine that moves and computes nothing, and tells how long that would have taken: queues over a virtual
/// clock, deterministic. Its backend is a null one (the real scheduler runs over it) whose events complete in
/// virtual time: a copy takes what its lane's rate says, a call its HostCall::paced_ns, on any lane. Time
/// passes while the one thread that uses it queues work or waits.
class Simulation {
 public:
  static std::unique_ptr<Simulation> create(const SimOptions& options);
  virtual ~Simulation() = default;

  virtual Backend& backend() noexcept = 0;
  virtual Clock& clock() noexcept = 0;
  /// From now on `trace`, which outlives the simulation, gets a track a lane.
  virtual void set_trace(Trace& trace) = 0;

  /// Queues a request of `bytes` to the slow tier; its number on that lane, for wait().
  virtual std::uint64_t request(SimLane lane, std::size_t bytes) = 0;
  virtual void wait(SimLane lane, std::uint64_t number) = 0;
  /// For so many nanoseconds at most: whether it is over.
  virtual bool wait_for(SimLane lane, std::uint64_t number, std::int64_t ns) = 0;
  /// Since the beginning.
  virtual double busy_s(SimLane lane) const noexcept = 0;
  virtual std::uint64_t transferred_bytes(SimLane lane) const noexcept = 0;
};

}  // namespace strata
