#pragma once

#include <optional>
#include <string>
#include <vector>

#include <strata/offload/machine_profile.h>
#include <strata/runtime/io.h>

#include "machine/compute_device.h"

namespace strata::cli {

/// Where `strata bench` leaves what it has measured of this host, computing on `device`: in
/// $XDG_CACHE_HOME/strata, or ~/.cache/strata. Empty where neither is known.
std::string profile_path(const std::vector<std::string>& environment, DeviceKind device);

/// What was measured here before; nothing where nothing was. `warning` says why it is not of this machine any
/// more (another CPU, or another number of threads); empty else.
struct CachedProfile {
  std::optional<MachineProfile> profile;
  std::string warning;
};
/// `name` is that of a profile that would be measured now. Errors: of a file that is there and is no profile.
Result<CachedProfile> load_cached_profile(Io& io, const std::string& path, const std::string& name);
/// "AMD EPYC, 2 threads", "NVIDIA H200 with AMD EPYC, 16 threads": of what a profile depends on.
std::string machine_name(const ComputeDevice& device, int threads);
/// What was measured here of the device that a run computes on. Errors: as load_cached_profile; of a device
/// that is not there.
Result<CachedProfile> load_local_profile(Io& io, const std::vector<std::string>& environment,
                                         const std::string& backend, int threads);

}  // namespace strata::cli
