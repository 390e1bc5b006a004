#pragma once

#include <optional>
#include <string>
#include <vector>

#include <strata/offload/machine_profile.h>
#include <strata/profile/compute_device.h>
#include <strata/runtime/io/io.h>

namespace strata {

/// The file in which `strata bench` stores the profile of this host computing on `device`, in
/// $XDG_CACHE_HOME/strata or ~/.cache/strata. Empty if `environment` defines neither.
std::string profile_path(const std::vector<std::string>& environment, DeviceKind device);

/// A stored profile, if there is one that this version can use. `warning` is empty, or says that the profile
/// was measured on another machine (another CPU or another number of threads), or why there is none.
struct CachedProfile {
  std::optional<MachineProfile> profile;
  std::string warning;
};
/// Reads the profile at `path`. `name`: the machine_name() that a profile measured now would have. Errors:
/// the file exists but is not a profile.
Result<CachedProfile> load_cached_profile(Io& io, const std::string& path, const std::string& name);
/// Writes a profile, with the folders above it. Errors: those of writing; `invalid` for one that could not be
/// read back, which would make every plan fail.
Status store_profile(Io& io, const MachineProfile& profile, const std::string& path);
/// The name of the machine that a profile depends on: "AMD EPYC, 2 threads", "NVIDIA H200 with AMD EPYC, 16
/// threads".
std::string machine_name(const ComputeDevice& device, int threads);
/// The stored profile of this host for the device that a run computes on; if there is none, the shipped one
/// of its GPU with a warning. Errors: those of load_cached_profile(), and `unsupported` if there is no such
/// device. `local_ranks`: processes that share this machine's threads; if there are several, the profile may
/// be that of more threads than one of them has.
Result<CachedProfile> load_local_profile(Io& io, const std::vector<std::string>& environment,
                                         const std::string& backend, int threads, int local_ranks = 1);

}  // namespace strata
