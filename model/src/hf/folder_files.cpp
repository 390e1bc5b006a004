#include "folder_files.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

namespace fs = std::filesystem;

bool is_within(const fs::path& file, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), file.begin(), file.end()).first == folder.end();
}

}  // namespace

Result<std::string> file_in_hf_folder(const std::string& folder, const std::string& name) {
  const fs::path path = fs::path(folder) / name;
  std::error_code error;
  if (!fs::is_symlink(path, error)) return str(folder, "/", name);
  const fs::path target = fs::canonical(path, error);
  if (error)
    return Status::error(Code::not_found,
                         str(path.string(), ": a symlink to ", fs::read_symlink(path, error).string(),
                             ", which is not there"));
  const fs::path home = fs::canonical(folder, error);
  if (error) return Status::error(Code::io_error, str(folder, ": ", error.message()));
  const bool is_snapshot = home.parent_path().filename() == "snapshots";
  if (is_within(target, home) ||
      (is_snapshot && is_within(target, home.parent_path().parent_path() / "blobs")))
    return target.string();
  return Status::error(
      Code::invalid,
      str(path.string(), ": a symlink to ", target.string(),
          ", which is neither in this folder nor in the blobs of "
          "a hub cache that it is a snapshot of; copy the file here, or name the folder that it is in"));
}

Result<std::string> read_in_hf_folder(Io& io, const std::string& folder, const std::string& name,
                                      std::uint64_t limit_bytes) {
  STRATA_TRY_ASSIGN(const std::string path, file_in_hf_folder(folder, name));
  return read_text(io, path, limit_bytes);
}

namespace {

std::string without_last_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

std::string parent_of(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? "." : path.substr(0, std::max<std::size_t>(slash, 1));
}

}  // namespace

Status write_whole(Io& io, const std::string& given,
                   const std::function<Status(const std::string& draft)>& write) {
  const std::string path = without_last_slashes(given);  // "out/.unfinished" would be inside "out/"
  if (io.exists(path)) return Status::error(Code::invalid, str(path, " already exists; name a new one"));
  const std::string draft = path + ".unfinished";
  if (io.exists(draft)) STRATA_TRY(io.remove_all(draft));  // left by a killed process
  Status status = write(draft);
  if (status.is_ok()) status = io.rename(draft, path);
  if (status.is_ok()) return io.sync_dir(parent_of(path));
  (void)io.remove_all(draft);  // return the first error
  return status;
}

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  std::string text = "[";
  for (const std::uint64_t extent : shape) text += str(text.size() > 1 ? ", " : "", extent);
  return text + "]";
}

}  // namespace strata::detail
