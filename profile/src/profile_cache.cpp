#include <strata/profile/profile_cache.h>

#include <filesystem>

#include <strata/profile/memory_budgets.h>
#include <strata/runtime/memory/host_memory.h>
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
  auto read = read_machine_profile(path);
  if (!read.has_value() && read.status().code() == Code::unsupported) {
    found.warning = str(read.status().message(), "; it is not used");
    return found;
  }
  if (!read.has_value()) return read.status();
  found.profile = std::move(*read);
  if (found.profile->name != name)
    found.warning = str(path, " was measured on a different machine, ", found.profile->name, "; this is ",
                        name, ": run strata bench");
  return found;
}

namespace {

// What is known of such GPUs, with the memory and the cores of this machine.
void assume_shipped(const ComputeDevice& device, int threads, CachedProfile& found) {
  std::optional<MachineProfile> shipped = shipped_profile_of_gpu(device.name);
  if (!shipped) return;
  const std::uint64_t share = default_ram_budget(read_host_facts());
  shipped->memory = {default_gpu_budget(device.free_bytes), 2 * share, 0};
  shipped->read_bytes_per_s = shipped->write_bytes_per_s = shipped->disk_bytes_per_s = 0;  // another disk's
  shipped->cores = threads;
  found.warning += str(found.warning.empty() ? "" : "\n", "plans are made by the shipped profile ",
                       shipped->name, ", since ", device.name, " was not measured here: run strata bench");
  found.profile = std::move(shipped);
}

}  // namespace

Result<CachedProfile> load_local_profile(Io& io, const std::vector<std::string>& environment,
                                         const std::string& backend, int threads, int local_ranks) {
  STRATA_TRY_ASSIGN(const ComputeDevice device, compute_device(backend));
  const std::string name = machine_name(device, threads);
  STRATA_TRY_ASSIGN(CachedProfile found,
                    load_cached_profile(io, profile_path(environment, device.kind), name));
  const auto without_threads = [](const std::string& of) { return of.substr(0, of.rfind(", ")); };
  if (!found.profile && device.kind == DeviceKind::cuda) assume_shipped(device, threads, found);
  if (local_ranks > 1 && found.profile && without_threads(found.profile->name) == without_threads(name))
    found.warning.clear();
  return found;
}

}  // namespace strata
