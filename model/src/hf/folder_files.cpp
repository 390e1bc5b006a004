#include "folder_files.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>

#include <strata/model/hf/model_files.h>
#include <strata/runtime/str.h>
#include <strata/text/model_files.h>

namespace strata::detail {
Result<std::string> read_in_hf_folder(Io& io, const std::string& folder, const std::string& name,
                                      std::uint64_t limit_bytes) {
  STRATA_TRY_ASSIGN(const std::string path, file_in_hf_folder(folder, name));
  return read_model_file(io, path, limit_bytes);
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

namespace {

// "out.unfinished-HOST-", which the id of the process follows.
std::string draft_prefix(const std::string& path) {
  char host[HOST_NAME_MAX + 1] = {};
  (void)::gethostname(host, sizeof host - 1);
  return str(path, ".unfinished-", host, "-");
}

// Removes the drafts of exports to `path` by processes of this host that no longer exist. Nothing else has
// such a name.
Status remove_old_drafts(Io& io, const std::string& path) {
  const std::string parent = parent_of(path), prefix = draft_prefix(path.substr(path.rfind('/') + 1));
  const auto names = io.list(parent);
  if (!names.has_value()) return {};  // creating the draft says why
  for (const std::string& name : *names) {
    if (!name.starts_with(prefix)) continue;
    ::pid_t process = 0;
    const char *const digits = name.data() + prefix.size(), *const end = name.data() + name.size();
    const auto parsed = std::from_chars(digits, end, process);
    const bool is_pid = parsed.ec == std::errc{} && parsed.ptr == end && process > 0;
    if (is_pid && ::kill(process, 0) != 0 && errno == ESRCH)
      STRATA_TRY(io.remove_all(str(parent, "/", name)));
  }
  return {};
}

// Does not replace what another process has made there meanwhile: a folder with something in it is never
// replaced, and the name of a file is taken first.
Status rename_new(Io& io, const std::string& draft, const std::string& path) {
  if (io.open(draft, OpenMode::read).has_value()) STRATA_TRY(io.open(path, OpenMode::create).status());
  return io.rename(draft, path);
}

}  // namespace

Status write_whole(Io& io, const std::string& given,
                   const std::function<Status(const std::string& draft)>& write) {
  const std::string path = without_last_slashes(given);  // "out/.unfinished" would be inside "out/"
  if (io.exists(path)) return Status::error(Code::invalid, str(path, " already exists; name a new one"));
  STRATA_TRY(remove_old_drafts(io, path));
  const std::string draft = str(draft_prefix(path), ::getpid());
  if (io.exists(draft)) return Status::error(Code::invalid, str(draft, " already exists; remove it"));
  Status status = write(draft);
  if (status.is_ok()) status = rename_new(io, draft, path);
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
