#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <strata/runtime/status.h>

namespace strata {

struct NumaNode {
  int index = 0;  ///< the system's number
  int cores = 0;
  std::uint64_t memory_bytes = 0;
};

/// A physical core, and those of its hardware threads (the system's numbers) that this process may run on.
struct UsableCore {
  int package = 0;
  int numa = 0;  ///< the system's number of the nearest node
  std::vector<int> cpus;
};

/// The part of the machine this process may use.
struct Topology {
  int packages = 0;
  int cores = 0;
  int hardware_threads = 0;
  int usable_threads = 0;                     ///< hardware threads in the affinity mask, >= 1
  std::uint64_t l2_bytes = 0;                 ///< of one core
  std::uint64_t l3_bytes = 0;                 ///< all of them together
  std::vector<NumaNode> numa;                 ///< at least one
  std::vector<UsableCore> usable_cores = {};  ///< at least one; those of a node beside each other
  bool can_bind = true;                       ///< whether the system lets threads choose where they run

  /// Whether the affinity mask is narrower than the machine (a cgroup's cpuset is the machine): whoever
  /// started this process chose its cores.
  bool is_bound() const noexcept { return usable_threads < hardware_threads; }
};
/// Asks hwloc. Errors: `unsupported` where it cannot read the machine.
Result<Topology> read_topology();
/// The machine that an hwloc synthetic description tells of ("package:2 numa:2 core:8 pu:2"), with an
/// affinity mask; an empty mask is all of it. Errors: `invalid` for a description hwloc does not take, or a
/// mask with nothing of the machine.
Result<Topology> synthetic_topology(const std::string& synthetic, std::span<const int> mask = {});

/// Stands for every NUMA node this process may use.
inline constexpr int kAllNumaNodes = -1;
/// Says where the pages of a mapping shall come from, before they are touched: from `node` (the system's
/// number), or in turn from all nodes. Errors: `invalid` for a node that is not there, naming it;
/// `unsupported` where the system refuses (a container's seccomp filter), after which first touch decides.
Status bind_to_numa(void* data, std::size_t bytes, int node);
/// The node that `data` is bound to; kAllNumaNodes where there are several or none was asked for.
/// Errors: `unsupported` where the system does not say.
Result<int> numa_binding(const void* data, std::size_t bytes);

/// What the CPU has and the system lets programs use (CPUID and XCR0; on AArch64 NEON is always there).
struct CpuFeatures {
  std::string name;
  bool sse42 = false, avx2 = false, f16c = false;
  bool avx512f = false, avx512bw = false, avx512dq = false, avx512vl = false, avx512_bf16 = false;
  bool amx_bf16 = false;
  bool neon = false;
  /// The widest body the SIMD code has for this CPU: "avx512", "avx2", "sse4", "neon" or "scalar".
  const char* isa() const noexcept;
};
CpuFeatures read_cpu_features();

struct HugePages {
  std::string transparent;           ///< "always", "madvise", "never"; empty where the kernel has none
  std::uint64_t reserved_bytes = 0;  ///< of the default size
  std::uint64_t free_bytes = 0;
};

/// Limits that end a run when they are met unseen.
struct HostFacts {
  std::string kernel;  ///< "6.1.0-18-amd64"
  std::uint64_t total_ram_bytes = 0;
  std::uint64_t available_ram_bytes = 0;
  std::optional<std::uint64_t> cgroup_limit_bytes;  ///< the smallest limit from our cgroup upwards
  std::optional<std::uint64_t> cgroup_used_bytes;   ///< of the cgroup with that limit
  /// What the cgroups leave, from ours upwards the least: limit less use, where file cache, which gives way,
  /// counts as free.
  std::optional<std::uint64_t> cgroup_free_bytes;
  std::optional<double> cgroup_cpus;                       ///< CPU quota over its period
  std::optional<std::uint64_t> memlock_limit_bytes;        ///< none: unlimited
  std::optional<std::uint64_t> address_space_limit_bytes;  ///< RLIMIT_AS; none: unlimited
  std::uint64_t address_space_used_bytes = 0;              ///< mapped by this process
  std::uint64_t anonymous_rss_bytes = 0;                   ///< resident of this process, files not counted
  HugePages huge_pages;

  /// What a run may take now: available RAM, or what the cgroups leave where that is less. Swap is not
  /// counted.
  std::uint64_t usable_ram_bytes() const noexcept;
};
/// Reads /proc and /sys below `root` (tests own one; the real one is ""), getrlimit and uname. What is
/// missing stays 0 or empty: no fact is worth refusing to start.
HostFacts read_host_facts(const std::string& root = "");

}  // namespace strata
