#include "run/folder/own_files.h"

#include <algorithm>
#include <filesystem>

#include <sys/stat.h>

#include <strata/runtime/str.h>
#include <strata/config/run_layout.h>

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

// Whether it is one of the files, or a folder that one of them is in.
bool holds_one_of(const fs::path& path, std::span<const std::string> files) {
  std::error_code error;
  const fs::path place = fs::canonical(path, error);
  return !error && std::any_of(files.begin(), files.end(), [&](const std::string& file) {
    const fs::path named = fs::weakly_canonical(file, error);
    return !error &&
           std::mismatch(place.begin(), place.end(), named.begin(), named.end()).first == place.end();
  });
}

// Whether this process writes its messages there: `strata train --out runs/a > runs/a/log.txt`.
bool takes_messages(const fs::path& path) {
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) return false;
  for (const int descriptor : {1, 2}) {
    struct stat open {};
    if (::fstat(descriptor, &open) == 0 && open.st_dev == file.st_dev && open.st_ino == file.st_ino)
      return true;
  }
  return false;
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

Result<std::vector<std::string>> own_names_in(Io& io, const std::string& path) {
  std::vector<std::string> names;
  if (io.exists(path)) {
    STRATA_TRY_ASSIGN(names, io.list(path));
  }
  // Checkpoints are written by whoever holds the lock, and never over others.
  std::erase_if(names, [](const std::string& name) { return !is_own_name(name) || name == "checkpoints"; });
  std::sort(names.begin(), names.end());
  return names;
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
  const bool is_runs = has_begun(io, path);
  for (const std::string& name : names) {
    const std::string file = path + "/" + name;
    if (is_own_name(name) ? is_runs
                          : name == kLockFile || name.starts_with(kRanksPrefix) || is_own_temp_file(name))
      continue;
    if ((!is_own_name(name) && (is_empty(file) || takes_messages(file))) || holds_one_of(file, inputs))
      continue;
    return refused(name, ", which is not a run's");
  }
  return {};
}

}  // namespace strata::detail
