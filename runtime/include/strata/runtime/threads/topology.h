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
  int index = 0;  ///< number given by the operating system
  int cores = 0;
  std::uint64_t memory_bytes = 0;
};

/// A physical core, with those of its hardware threads (in the operating system's numbering) that this
/// process may use.
struct UsableCore {
  int package = 0;
  int numa = 0;  ///< operating system's number of the nearest node
  std::vector<int> cpus;
};

/// The part of the machine that this process may use.
struct Topology {
  int packages = 0;
  int cores = 0;
  int hardware_threads = 0;
  int usable_threads = 0;                     ///< hardware threads in the affinity mask, >= 1
  std::uint64_t l2_bytes = 0;                 ///< per core
  std::uint64_t l3_bytes = 0;                 ///< sum over all caches
  std::vector<NumaNode> numa;                 ///< at least one
  std::vector<UsableCore> usable_cores = {};  ///< at least one; cores of the same node are adjacent
  bool can_bind = true;                       ///< whether the system lets threads choose their cores

  /// Whether the affinity mask is narrower than the machine, so whoever started this process chose its cores.
  /// A cgroup's cpuset counts as the machine.
  bool is_bound() const noexcept { return usable_threads < hardware_threads; }
};
/// Reads the topology with hwloc. Errors: `unsupported` if hwloc cannot read the machine.
Result<Topology> read_topology();
/// The machine given by an hwloc synthetic description ("package:2 numa:2 core:8 pu:2"), restricted to an
/// affinity mask; an empty mask means no restriction. Errors: `invalid` for a description that hwloc rejects,
/// or for a mask that contains no CPU of the machine.
Result<Topology> synthetic_topology(const std::string& synthetic, std::span<const int> mask = {});

/// Means every NUMA node that this process may use.
inline constexpr int kAllNumaNodes = -1;
/// Sets the NUMA node from which the pages of a mapping will be allocated, before they are touched: `node`
/// (in the operating system's numbering), or interleaved over all nodes. Errors: `invalid` for a node that
/// does not exist, naming it; `unsupported` if the system refuses (a container's seccomp filter), in which
/// case first touch decides.
Status bind_to_numa(void* data, std::size_t bytes, int node);
/// The node that `data` is bound to; kAllNumaNodes if it is bound to several or to none. Errors:
/// `unsupported` if the system does not report it.
Result<int> numa_binding(const void* data, std::size_t bytes);

/// Features that the CPU has and the operating system enables (CPUID and XCR0; AArch64 always has NEON).
struct CpuFeatures {
  std::string name;
  bool sse42 = false, avx2 = false, f16c = false;
  bool avx512f = false, avx512bw = false, avx512dq = false, avx512vl = false, avx512_bf16 = false;
  bool amx_bf16 = false;
  bool neon = false;
  /// The widest SIMD kernel that strata has for this CPU: "avx512", "avx2", "sse4", "neon" or "scalar".
  const char* isa() const noexcept;
};
CpuFeatures read_cpu_features();

struct HugePages {
  std::string transparent;           ///< "always", "madvise", "never"; empty if unsupported
  std::uint64_t reserved_bytes = 0;  ///< the reserved bytes in pages of the default size
  std::uint64_t free_bytes = 0;
};

/// Limits of the host that would kill or fail a run that exceeds them.
struct HostFacts {
  std::string kernel;  ///< "6.1.0-18-amd64"
  std::uint64_t total_ram_bytes = 0;
  std::uint64_t available_ram_bytes = 0;
  std::optional<std::uint64_t> cgroup_limit_bytes;  ///< the smallest limit of our cgroup and its ancestors
  std::optional<std::uint64_t> cgroup_used_bytes;   ///< the use of the cgroup with that limit
  /// Memory that the cgroups leave: limit minus use, the minimum over our cgroup and its ancestors. File
  /// cache counts as free, since the kernel reclaims it.
  std::optional<std::uint64_t> cgroup_free_bytes;
  std::optional<double> cgroup_cpus;                       ///< CPU quota divided by its period
  std::optional<std::uint64_t> memlock_limit_bytes;        ///< none: unlimited
  std::optional<std::uint64_t> address_space_limit_bytes;  ///< RLIMIT_AS; none: unlimited
  std::uint64_t address_space_used_bytes = 0;              ///< address space mapped by this process
  std::uint64_t anonymous_rss_bytes = 0;                   ///< resident memory except file pages
  HugePages huge_pages;

  /// Memory that a run may use now: available RAM, or what the cgroups leave if that is less. Swap is not
  /// counted.
  std::uint64_t usable_ram_bytes() const noexcept;
};
/// Reads /proc and /sys below `root` (tests pass a directory of their own; "" is the real root), getrlimit
/// and uname. Anything that cannot be read stays 0 or empty, since none of these facts is worth refusing to
/// start for.
HostFacts read_host_facts(const std::string& root = "");

}  // namespace strata
