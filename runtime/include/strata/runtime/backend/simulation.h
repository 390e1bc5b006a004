#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/trace/trace.h>

namespace strata {

/// The in-order queues of a simulated machine: one per stream role, and one per direction of the NVMe tier.
enum class SimLane : std::uint8_t { compute, h2d, d2h, cpu, collective, nvme_read, nvme_write };
inline constexpr std::size_t kSimLanes = 7;

/// The resources that lanes share.
enum class SimResource : std::uint8_t { memory, cores, link, disk };
inline constexpr std::size_t kSimResources = 4;

struct SimOptions {
  struct Rate {
    double bytes_per_s = 0;  ///< 0: infinitely fast
    double latency_s = 0;    ///< added to every transfer
  };
  std::array<Rate, kSimLanes> rates{};  ///< of copies and NVMe requests; other work has its own time
  /// Fraction of each resource that a lane's work uses when it runs undisturbed. When the fractions of all
  /// active lanes add up to more than 1, each of them slows down in proportion. A lane that runs alone is
  /// never slowed.
  std::array<std::array<double, kSimResources>, kSimLanes> shares{};
  /// Time that the thread that queues work needs for each entry.
  double launch_overhead_s = 0;
  /// Delay until a lane or thread that waited for another lane continues after that lane's work has ended.
  double wake_s = 0;

  Rate& rate(SimLane lane) noexcept { return rates[static_cast<std::size_t>(lane)]; }
  double& share(SimLane lane, SimResource of) noexcept {
    return shares[static_cast<std::size_t>(lane)][static_cast<std::size_t>(of)];
  }
};

/// A simulated machine: in-order queues on a virtual clock. It moves and computes nothing but reports how
/// long that would have taken, and is deterministic. Its backend is a null backend, on which the real
/// scheduler runs, whose events complete in virtual time: a copy takes the time given by its lane's rate, and
/// a call takes its HostCall::paced_ns, whatever its lane. Time advances only while the single thread that
/// uses the simulation queues work or waits.
class Simulation {
 public:
  static std::unique_ptr<Simulation> create(const SimOptions& options);
  virtual ~Simulation() = default;

  virtual Backend& backend() noexcept = 0;
  virtual Clock& clock() noexcept = 0;
  /// Adds a track per lane to `trace`, which must outlive the simulation, and records from now on.
  virtual void set_trace(Trace& trace) = 0;

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
