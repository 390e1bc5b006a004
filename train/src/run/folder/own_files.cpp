#include "run/folder/own_files.h"

#include <algorithm>
#include <filesystem>

#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

namespace fs = std::filesystem;

bool is_own_name(std::string_view name) {
  const auto is_between = [&](std::string_view prefix, std::string_view suffix) {
    return name.starts_with(prefix) && name.ends_with(suffix);
  };
  return std::find(std::begin(kOwnFiles), std::end(kOwnFiles), name) != std::end(kOwnFiles) ||
         name == kBaseFolder || name == kEventsFolder || name == "checkpoints" ||
         is_between(kRankTracePrefix, kRankTraceSuffix) || is_between(kRolloutsPrefix, kRolloutsSuffix);
}

// An empty file, or a folder with nothing but empty folders in it.
bool is_empty(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(path, error)))
    return fs::is_regular_file(path, error) && fs::file_size(path, error) == 0;
  for (fs::recursive_directory_iterator at(path, error), end; !error && at != end; at.increment(error))
    if (!at->is_directory(error)) return false;
  return !error;
}

bool is_one_of(const fs::path& path, std::span<const std::string> files) {
  return std::any_of(files.begin(), files.end(), [&](const std::string& file) {
    std::error_code error;
    return fs::equivalent(path, file, error) && !error;
  });
}

}  // namespace

bool is_own_temp_file(std::string_view name) {
  constexpr std::string_view kMark = ".tmp-";
  constexpr std::size_t kDigits = 16;
  const std::size_t at = name.rfind(kMark);
  if (at == std::string_view::npos || name.size() != at + kMark.size() + kDigits) return false;
  const std::string_view digits = name.substr(at + kMark.size());
  return digits.find_first_not_of("0123456789abcdef") == std::string_view::npos &&
         std::find(std::begin(kOwnFiles), std::end(kOwnFiles), name.substr(0, at)) != std::end(kOwnFiles);
}

Status check_no_other_files(Io& io, const std::string& path, bool is_run,
                            std::span<const std::string> inputs) {
  if (!io.exists(path)) return {};
  const auto refused = [&](const std::string& name, std::string_view why) {
    return Status::error(Code::invalid, str(path, " contains ", name, why, "; name a new or empty folder"));
  };
  if (is_run)
    return io.exists(path + "/config.json") ? refused("config.json", " of a model beside a run")
                                            : Status::ok();
  STRATA_TRY_ASSIGN(const std::vector<std::string> names, io.list(path));
  const bool has_begun = std::find(names.begin(), names.end(), kLockFile) != names.end();
  for (const std::string& name : names) {
    const std::string file = path + "/" + name;
    if (is_own_name(name) ? has_begun
                          : name == kLockFile || name.starts_with(kRanksPrefix) || is_own_temp_file(name))
      continue;
    if ((!is_own_name(name) && is_empty(file)) || is_one_of(file, inputs)) continue;
    return refused(name, ", which is not a run's");
  }
  return {};
}

}  // namespace strata::detail
