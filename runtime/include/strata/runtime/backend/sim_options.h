#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

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
  /// The rates of copies and NVMe requests; other work has its own time.
  std::array<Rate, kSimLanes> rates{};
  /// Fraction of each resource that a lane's work uses when it runs undisturbed. When the fractions of all
  /// active lanes add up to more than 1, each of them slows down in proportion. A lane that runs alone is
  /// never slowed.
  std::array<std::array<double, kSimResources>, kSimLanes> shares{};
  /// How much of the slowdown by a scarce memory a lane takes; 1: in proportion. Where the fractions add up
  /// to A, the lane takes 1 + yields (A - 1) times as long.
  std::array<double, kSimLanes> memory_yields = {1, 1, 1, 1, 1, 1, 1};
  /// Time that the thread that queues work needs for each entry.
  double launch_overhead_s = 0;
  /// Delay until a lane or thread that waited for another lane continues after that lane's work has ended.
  double wake_s = 0;

  Rate& rate(SimLane lane) noexcept { return rates[static_cast<std::size_t>(lane)]; }
  double& memory_yield(SimLane lane) noexcept { return memory_yields[static_cast<std::size_t>(lane)]; }
  double& share(SimLane lane, SimResource of) noexcept {
    return shares[static_cast<std::size_t>(lane)][static_cast<std::size_t>(of)];
  }
};

}  // namespace strata
