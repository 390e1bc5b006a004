#include <strata/runtime/io/io.h>

#include <dirent.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include <strata/runtime/io/errno_status.h>

#include "io/posix_file.h"

namespace strata {
namespace {

using detail::errno_status;

// The umask is applied to these: it is the user's choice who else may read the files.
constexpr mode_t kFileMode = 0666;
constexpr mode_t kDirMode = 0777;
// The contents of a scratch file are useful only to its process, and it may have a name for a moment.
constexpr mode_t kScratchMode = 0600;

struct Opened {
  int fd = -1;
  int error = 0;
};

Opened open_retrying(const std::string& path, int flags, mode_t mode = kFileMode) noexcept {
  for (;;) {
    const int fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
    if (fd >= 0 || errno != EINTR) return {fd, fd >= 0 ? 0 : errno};
  }
}

std::string random_suffix() {
  std::uint64_t bits = 0;
  // getrandom returns all 8 bytes once the entropy pool is ready. Before that, the exclusive create still
  // keeps names distinct.
  if (::getrandom(&bits, sizeof bits, 0) != sizeof bits) bits = static_cast<std::uint64_t>(::getpid());
  return fmt::format("{:016x}", bits);
}

// Uses O_TMPFILE if the file system has it (the file is never visible and needs no cleanup); otherwise
// creates the file exclusively and unlinks it.
Opened open_scratch(const std::string& folder, int extra) {
  const Opened unnamed = open_retrying(folder, O_TMPFILE | O_RDWR | O_EXCL | extra, kScratchMode);
  if (unnamed.fd >= 0) return unnamed;
  // EISDIR comes from kernels without O_TMPFILE. EINVAL may also mean that O_DIRECT is refused; the second
  // try finds out.
  if (unnamed.error != EOPNOTSUPP && unnamed.error != EISDIR && unnamed.error != EINVAL) return unnamed;
  const std::string name = folder + "/.strata-" + random_suffix();
  const Opened named = open_retrying(name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | extra, kScratchMode);
  // Some file systems create the name before they refuse O_DIRECT, so it is removed on failure too, unless
  // the file belongs to somebody else (EEXIST).
  if (named.error != EEXIST) ::unlink(name.c_str());
  return named;
}

Opened open_mode(const std::string& path, OpenMode mode, int extra) {
  switch (mode) {
    // O_NONBLOCK: opening a FIFO must fail instead of blocking. It has no effect on regular files.
    case OpenMode::read:
      return open_retrying(path, O_RDONLY | O_NONBLOCK | extra);
    case OpenMode::read_no_follow:
      return open_retrying(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | extra);
    case OpenMode::update:
      return open_retrying(path, O_RDWR | O_NONBLOCK | O_NOFOLLOW | extra);
    case OpenMode::create:
      return open_retrying(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | extra);
    case OpenMode::truncate:
      return open_retrying(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | extra);
    case OpenMode::append:
      return open_retrying(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | extra);
    case OpenMode::scratch:
      return open_scratch(path, extra);
  }
  return {-1, EINVAL};
}

// For files being written: a missing parent directory is not a missing input, so not_found becomes io_error.
Status as_creation_error(const Status& status) {
  return status.code() == Code::not_found ? Status::error(Code::io_error, std::string(status.message()))
                                          : status;
}

std::string parent_of(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Returns 0 or errno. std::filesystem::remove_all() ends the program if there is no memory.
int remove_tree(int at, const char* name) noexcept {
  if (::unlinkat(at, name, 0) == 0 || errno == ENOENT) return 0;
  if (errno != EISDIR) return errno;
  const int fd = ::openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR* const dir = fd < 0 ? nullptr : ::fdopendir(fd);
  int error = dir == nullptr ? errno : 0;
  if (dir == nullptr && fd >= 0) ::close(fd);
  while (error == 0) {
    errno = 0;
    const dirent* const entry = ::readdir(dir);
    if (entry == nullptr) {
      error = errno;
      break;
    }
    const std::string_view inner = entry->d_name;
    if (inner != "." && inner != "..") error = remove_tree(::dirfd(dir), entry->d_name);
  }
  if (dir != nullptr) ::closedir(dir);
  if (error == 0 && ::unlinkat(at, name, AT_REMOVEDIR) != 0 && errno != ENOENT) error = errno;
  return error;
}

class PosixIo final : public Io {
 public:
  Result<std::unique_ptr<File>> open(const std::string& path, OpenMode mode, bool direct) override {
    Opened opened = open_mode(path, mode, direct ? O_DIRECT : 0);
    if (direct && opened.fd < 0 && opened.error == EINVAL) {
      direct = false;
      // A refused O_DIRECT may leave a new empty file behind, which would make the exclusive create fail.
      if (mode == OpenMode::create) ::unlink(path.c_str());
      opened = open_mode(path, mode, 0);
    }
    if (mode == OpenMode::read_no_follow && opened.error == ELOOP)
      return Status::error(Code::invalid,
                           str("opening ", path, ": it is a symlink, which is not followed here"));
    if (opened.fd < 0) return errno_status("opening", path, opened.error);
    std::unique_ptr<detail::PosixFile> file;
    try {
      file = std::make_unique<detail::PosixFile>(opened.fd, path, direct);
    } catch (...) {  // nobody owns the descriptor yet
      ::close(opened.fd);
      throw;
    }
    struct stat info {};
    if (::fstat(opened.fd, &info) != 0) return errno_status("reading the type of", path, errno);
    if (!S_ISREG(info.st_mode))
      return Status::error(Code::invalid, str("opening ", path, ": not a regular file"));
    return std::unique_ptr<File>(std::move(file));
  }

  Status make_dirs(const std::string& path) override {
    for (std::size_t at = 0; at != std::string::npos;) {
      at = path.find('/', at + 1);
      const std::string part = path.substr(0, at);
      if (part.empty() || ::mkdir(part.c_str(), kDirMode) == 0) continue;
      const int error = errno;
      struct stat info {};
      // A path that exists but cannot be examined is a symlink to nothing or to itself; errno of stat says
      // which.
      if (::stat(part.c_str(), &info) != 0)
        return as_creation_error(
            errno_status("creating the directory", part, error == EEXIST ? errno : error));
      if (!S_ISDIR(info.st_mode)) return errno_status("creating the directory", part, ENOTDIR);
    }
    return Status::ok();
  }

  Status rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) == 0) return Status::ok();
    return errno_status(str("renaming ", from, " to"), to, errno);
  }

  Status sync_dir(const std::string& path) override {
    const Opened opened = open_retrying(path, O_RDONLY | O_DIRECTORY);
    if (opened.fd < 0) return errno_status("opening the directory", path, opened.error);
    const int error = ::fsync(opened.fd) == 0 ? 0 : errno;
    ::close(opened.fd);
    return error == 0 ? Status::ok() : errno_status("syncing the directory", path, error);
  }

  Status remove_all(const std::string& path) override {
    const int error = remove_tree(AT_FDCWD, path.c_str());
    return error != 0 ? errno_status("removing", path, error) : Status::ok();
  }

  Status remove_empty_dir(const std::string& path) override {
    return ::rmdir(path.c_str()) == 0 ? Status::ok() : errno_status("removing", path, errno);
  }

  Result<std::vector<std::string>> list(const std::string& path) override {
    const auto close_dir = [](DIR* opened) { ::closedir(opened); };
    const std::unique_ptr<DIR, decltype(close_dir)> dir(::opendir(path.c_str()), close_dir);
    if (dir == nullptr) return errno_status("listing", path, errno);
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = ::readdir(dir.get())) {
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
      errno = 0;
    }
    if (errno != 0) return errno_status("listing", path, errno);
    std::sort(names.begin(), names.end());
    return names;
  }

  bool exists(const std::string& path) override { return ::access(path.c_str(), F_OK) == 0; }

  Result<std::uint64_t> free_bytes(const std::string& path) override {
    struct statvfs info {};
    if (::statvfs(path.c_str(), &info) != 0) return errno_status("reading the free space of", path, errno);
    return std::uint64_t{info.f_bavail} * info.f_frsize;
  }
};

}  // namespace

Io& posix_io() noexcept {
  static PosixIo io;  // stateless
  return io;
}

Status write_text_atomically(Io& io, const std::string& path, std::string_view text) {
  const std::string beside = path + ".tmp-" + random_suffix();
  const auto remove = [&] {
    static_cast<void>(io.remove_all(beside));
  };  // the first error is the one to report
  const auto write = [&]() -> Status {
    STRATA_TRY_ASSIGN(const std::unique_ptr<File> file, io.open(beside, OpenMode::create));
    STRATA_TRY(write_all(*file, 0, std::as_bytes(std::span(text))));
    return file->sync();
  };
  Status status;
  try {
    status = write();
    if (status.is_ok()) status = io.rename(beside, path);
  } catch (...) {
    remove();
    throw;
  }
  if (!status.is_ok()) {
    remove();
    return as_creation_error(status).annotate(str("writing ", path));
  }
  return io.sync_dir(parent_of(path)).annotate(str("writing ", path));
}

}  // namespace strata
