#include <strata/profile/profile_cache.h>

#include <filesystem>

#include <strata/runtime/str.h>
#include <strata/runtime/threads/topology.h>

namespace strata {

std::string profile_path(const std::vector<std::string>& environment, DeviceKind device) {
  std::string cache, home;
  for (const std::string& variable : environment) {
    if (variable.starts_with("XDG_CACHE_HOME=")) cache = variable.substr(15);
    if (variable.starts_with("HOME=")) home = variable.substr(5);
  }
  if (cache.empty() && !home.empty()) cache = home + "/.cache";
  if (cache.empty()) return {};
  return cache + (device == DeviceKind::cuda ? "/strata/machine-cuda.toml" : "/strata/machine.toml");
}

Status store_profile(Io& io, const MachineProfile& profile, const std::string& path) {
  STRATA_TRY(parse_machine_profile(to_toml(profile), path).status());
  if (const std::string folder = std::filesystem::path(path).parent_path().string(); !folder.empty())
    STRATA_TRY(io.make_dirs(folder));
  return write_text_atomically(io, path, to_toml(profile));
}

std::string machine_name(const ComputeDevice& device, int threads) {
  return str(device.name, device.name.empty() ? "" : " with ", read_cpu_features().name, ", ", threads,
             threads == 1 ? " thread" : " threads");
}

Result<CachedProfile> load_cached_profile(Io& io, const std::string& path, const std::string& name) {
  CachedProfile found;
  if (path.empty() || !io.exists(path)) return found;
  STRATA_TRY_ASSIGN(found.profile, read_machine_profile(path));
  if (found.profile->name != name)
    found.warning = str(path, " was measured on a different machine, ", found.profile->name, "; this is ",
                        name, ": run strata bench", found.profile->device_is_host ? "" : " --backend cuda");
  return found;
}

Result<CachedProfile> load_local_profile(Io& io, const std::vector<std::string>& environment,
                                         const std::string& backend, int threads, int local_ranks) {
  STRATA_TRY_ASSIGN(const ComputeDevice device, compute_device(backend));
  const std::string name = machine_name(device, threads);
  STRATA_TRY_ASSIGN(CachedProfile found,
                    load_cached_profile(io, profile_path(environment, device.kind), name));
  const auto without_threads = [](const std::string& of) { return of.substr(0, of.rfind(", ")); };
  if (local_ranks > 1 && found.profile && without_threads(found.profile->name) == without_threads(name))
    found.warning.clear();
  return found;
}

}  // namespace strata
