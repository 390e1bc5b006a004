#pragma once

#include <optional>
#include <string>
#include <vector>

#include <strata/runtime/core_share.h>
#include <strata/runtime/status.h>
#include <strata/runtime/topology.h>

#include "machine/profile_cache.h"

namespace strata::cli {

enum class Health : std::uint8_t { ok, degraded, broken, unchecked };
std::string_view to_string(Health health) noexcept;

/// A row of `strata doctor`.
struct Check {
  std::string name;
  Health health = Health::ok;
  std::string detail = {};
  std::string remedy = {};  ///< a command or one sentence; empty where all is well
  Code code = Code::ok;     ///< why it is broken; gives the exit code
};

struct CudaProbe {
  bool usable = false;
  std::string detail = {};
  std::string remedy;
};
/// What there is of CUDA, as the runtime tells.
CudaProbe cuda_probe();

/// What the machine answered; tests fill it by hand.
struct DoctorFacts {
  CpuFeatures cpu;
  Result<Topology> topology = Topology{};
  Result<CoreShare> share = CoreShare{};  ///< of this process
  HostFacts host;
  Status uring;  ///< of io_uring_setup
  struct NvmeDir {
    std::string path;
    Result<bool> direct = false;  ///< whether it takes O_DIRECT; an error where it takes no file
  };
  std::vector<NvmeDir> nvme_dirs{};  ///< those asked for
  CudaProbe cuda;
  std::vector<std::string> collectives{};           ///< libraries for several ranks that there are
  Result<CachedProfile> profile = CachedProfile{};  ///< that forecasts are made from
  Status environment;                               ///< of the STRATA_* variables
};

DoctorFacts gather_facts(const std::vector<std::string>& nvme_dirs,
                         const std::vector<std::string>& environment);
std::vector<Check> diagnose(const DoctorFacts& facts);

/// Asks the kernel for a ring of one entry. Errors: `unsupported` with errno's text.
Status probe_io_uring();
/// Of NCCL and MPI, those that the dynamic linker finds, with NCCL's version.
std::vector<std::string> probe_collectives();
/// Writes one block to an unnamed file in `dir`, with O_DIRECT where it can. Errors: `not_found`, `io_error`,
/// `no_space`.
Result<bool> probe_direct(const std::string& dir);

}  // namespace strata::cli
