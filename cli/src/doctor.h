#pragma once

#include <optional>
#include <string>
#include <vector>

#include <strata/profile/profile_cache.h>
#include <strata/runtime/status.h>
#include <strata/runtime/threads/core_share.h>
#include <strata/runtime/threads/topology.h>

namespace strata::cli {

enum class Health : std::uint8_t { ok, degraded, broken, unchecked };
std::string_view to_string(Health health) noexcept;

/// A row in the output of `strata doctor`.
struct Check {
  std::string name;
  Health health = Health::ok;
  std::string detail = {};
  std::string remedy = {};  ///< a command or one sentence; empty if nothing needs to be done
  Code code = Code::ok;     ///< the error if it is broken; determines the exit code
};

struct CudaProbe {
  bool usable = false;
  std::string detail = {};
  std::string remedy;
};
/// The state of CUDA as the runtime module reports it.
CudaProbe cuda_probe();

/// The probed facts about the machine. Tests fill it by hand.
struct DoctorFacts {
  CpuFeatures cpu;
  Result<Topology> topology = Topology{};
  Result<CoreShare> share = CoreShare{};  ///< the cores of this process
  HostFacts host;
  Status uring;  ///< the result of io_uring_setup
  struct NvmeDir {
    std::string path;
    Result<bool> direct = false;  ///< whether it supports O_DIRECT; an error if no file can be written
  };
  std::vector<NvmeDir> nvme_dirs{};  ///< from --nvme-dir
  CudaProbe cuda;
  std::vector<std::string> collectives{};           ///< communication libraries that were found
  Result<CachedProfile> profile = CachedProfile{};  ///< the machine profile that forecasts use
  Status environment;                               ///< the check of the STRATA_* variables
};

DoctorFacts gather_facts(const std::vector<std::string>& nvme_dirs,
                         const std::vector<std::string>& environment);
std::vector<Check> diagnose(const DoctorFacts& facts);

/// Creates an io_uring with one entry. Errors: `unsupported` with the text of errno.
Status probe_io_uring();
/// The names of NCCL (with its version) and MPI libraries that the dynamic linker finds.
std::vector<std::string> probe_collectives();
/// Writes one block to an unnamed file in `dir` and returns whether O_DIRECT worked. Errors: `not_found`,
/// `io_error`, `no_space`.
Result<bool> probe_direct(const std::string& dir);

}  // namespace strata::cli
