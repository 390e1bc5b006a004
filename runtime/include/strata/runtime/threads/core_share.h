#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include <strata/runtime/status.h>
#include <strata/runtime/threads/topology.h>

namespace strata {

/// The rank of this process among those that a launcher started on this machine.
struct LocalRank {
  int rank = 0, size = 1;
  std::string variable = {};  ///< the environment variable it was read from; empty without a launcher
};
/// Reads the local rank from "NAME=value" strings: the variables of Open MPI, MPICH (Intel MPI) and torchrun
/// or, if none of those is set, of Slurm. Errors: `invalid` for values that are not numbers, are
/// inconsistent, or differ between launchers, naming the variables.
Result<LocalRank> local_rank(std::span<const std::string> environment);

struct CoreShareOptions {
  std::optional<int> threads = {};        ///< unset: one per core; 0: one per hardware thread
  std::optional<int> service_cores = {};  ///< unset: 1 from 8 cores on, 2 from 32 cores on
  std::optional<double> cpu_quota = {};   ///< CPUs granted by the cgroup to all local ranks together
};

/// The cores on which the compute threads of one process run.
struct CoreShare {
  struct Node {
    int index = 0;          ///< NUMA node number of the operating system
    int threads = 1;        ///< compute threads on this node, >= 1
    std::vector<int> cpus;  ///< hardware threads they may run on; empty if they are not bound
  };
  std::vector<Node> nodes;  ///< at least one
  /// Cores without a compute thread, so that threads that launch work and do I/O find an idle core.
  int service_cores = 0;
  /// Whether compute threads are bound to `cpus`; if false, the operating system places them.
  bool bound = false;
  std::string why;  ///< one line for the user: how the share was chosen

  int threads() const noexcept;
};

/// Partitions the cores of a machine among its ranks: whole NUMA nodes if there are no more ranks than nodes,
/// else contiguous cores of one node; ranks beyond the number of cores share one. A process whose launcher
/// restricted its affinity mask uses that whole mask and does not divide it again. There is one thread per
/// core unless `threads` says otherwise. The share is left unbound if it has more threads than hardware
/// threads or if the CPU quota is below its number of cores. A pure function. Errors: `invalid` if no core is
/// left for compute or a number is negative.
Result<CoreShare> partition_cores(const Topology& topology, const LocalRank& rank,
                                  const CoreShareOptions& options = {});

/// The share of this process on this machine. `environment` is as for local_rank(); `cpu_quota` is read from
/// the cgroup if `options` does not set it. If hwloc cannot read the machine, the share is unbound and says
/// so. Errors: those of local_rank() and partition_cores().
Result<CoreShare> process_core_share(std::span<const std::string> environment, CoreShareOptions options = {});

}  // namespace strata
