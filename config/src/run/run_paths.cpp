#include <strata/config/run_paths.h>

#include <filesystem>

#include <strata/runtime/str.h>
#include <strata/config/run_layout.h>

namespace strata {
namespace {

// Purely lexical: symlinks are not resolved, since users may rely on them to move files.
std::string absolute_path(const std::string& path) {
  std::string absolute = std::filesystem::absolute(path).lexically_normal().string();
  while (absolute.size() > 1 && absolute.ends_with('/')) absolute.pop_back();
  return absolute;
}

bool is_data(const ConfigEntry& entry) {
  return entry.spec->section == "data" && (entry.spec->name == "train" || entry.spec->name == "val");
}

}  // namespace

std::string run_config_toml(Io& io, const ConfigTree& tree, const std::string& run) {
  const std::string folder = absolute_path(run) + "/";
  ConfigTree moved = tree;
  moved.map_paths([&](const ConfigEntry& entry, const std::string& path) {
    if (is_data(entry) && !io.exists(path)) return path;
    std::string absolute = absolute_path(path);
    return absolute.starts_with(folder) ? absolute.substr(folder.size()) : absolute;
  });
  return moved.to_toml(true);
}

std::string run_folder_of_config(const std::string& file) {
  const std::string name = str("/", kResolvedConfig);
  return file.ends_with(name) ? file.substr(0, file.size() - name.size()) : std::string();
}

void resolve_run_paths(Io& io, ConfigTree& tree, const std::string& run) {
  tree.map_paths([&](const ConfigEntry& entry, const std::string& path) {
    if (path.starts_with('/') || !entry.origin.starts_with("file ")) return path;
    std::string in_run = run + "/" + path;
    return io.exists(in_run) ? in_run : path;
  });
}

std::string run_of_origin(std::string_view origin) {
  constexpr std::string_view kFile = "file ";
  if (!origin.starts_with(kFile)) return {};
  const std::string_view file = origin.substr(kFile.size(), origin.find_last_of(':') - kFile.size());
  if (file == kResolvedConfig) return ".";
  return run_folder_of_config(std::string(file));
}

}  // namespace strata
