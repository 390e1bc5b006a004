#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include <strata/runtime/status.h>
#include <strata/runtime/topology.h>

namespace strata {

/// Which of the processes that a launcher started on this machine this one is.
struct LocalRank {
  int rank = 0, size = 1;
  std::string variable = {};  ///< that told; empty where there is no launcher
};
/// Reads Open MPI's, MPICH's (Intel MPI), torchrun's and, where none of those is set, Slurm's variables from
/// "NAME=value" words. Errors: `invalid` for values that are no numbers, do not fit each other or differ
/// between launchers, naming the variables.
Result<LocalRank> local_rank(std::span<const std::string> environment);

struct CoreShareOptions {
  std::optional<int> threads = {};        ///< none: one a core; 0: every hardware thread
  std::optional<int> service_cores = {};  ///< none: 1 from 8 cores on, 2 from 32 on
  std::optional<double> cpu_quota = {};   ///< CPUs whose time the cgroup gives to all local ranks together
};

/// Where the compute threads of one process run.
struct CoreShare {
  struct Node {
    int index = 0;          ///< the system's number of the NUMA node
    int threads = 1;        ///< compute threads here, >= 1
    std::vector<int> cpus;  ///< hardware threads they may run on; empty where the system places them
  };
  std::vector<Node> nodes;  ///< at least one
  /// Cores that get no compute thread, so that threads that launch work and do I/O find one at once.
  int service_cores = 0;
  /// Compute threads are to be kept on `cpus`; where it is false the system places them.
  bool bound = false;
  std::string why;  ///< one line for a person

  int threads() const noexcept;
};

/// Deals the cores of a machine out: whole NUMA nodes where there are no more ranks than nodes, else
/// contiguous cores of one node; ranks past the number of cores share one. A process that was bound by
/// whoever started it has its mask, and does not divide it again. One thread a core, unless `threads` says
/// otherwise; more threads than the share has hardware threads, or a CPU quota below its cores, leave it
/// unbound. A pure function. Errors: `invalid`, if no core is left for compute or a number is negative.
Result<CoreShare> partition_cores(const Topology& topology, const LocalRank& rank,
                                  const CoreShareOptions& options = {});

/// The share of this process on this machine. `environment`: as for local_rank(); `cpu_quota` is read from
/// the cgroup where `options` has none. A machine that hwloc cannot read gives an unbound share that says so.
/// Errors: those of local_rank() and partition_cores().
Result<CoreShare> process_core_share(std::span<const std::string> environment, CoreShareOptions options = {});

}  // namespace strata
