#include "io/small_file.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

Status failed(const std::string& path, int error) {
  return Status::error(error == ENOENT || error == ENOTDIR ? Code::not_found : Code::io_error,
                       str(path, ": ", std::strerror(error)));
}

}  // namespace

Result<std::string> read_small_file(const std::string& path, std::size_t limit_bytes) {
  // O_NONBLOCK: opening a FIFO by mistake must not hang. It has no effect on regular files.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) return failed(path, errno);
  struct stat info {};
  if (::fstat(file.fd, &info) != 0) return failed(path, errno);
  if (S_ISDIR(info.st_mode)) return Status::error(Code::invalid, str(path, ": is a directory, not a file"));
  if (!S_ISREG(info.st_mode)) return Status::error(Code::invalid, str(path, ": is not a regular file"));
  std::string text;
  char block[16384];
  while (true) {
    const ssize_t n = ::read(file.fd, block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed(path, errno);
    if (n == 0) return text;
    text.append(block, static_cast<std::size_t>(n));
    if (text.size() > limit_bytes)
      return Status::error(Code::invalid,
                           str(path, ": is larger than ", limit_bytes, " bytes, the maximum size"));
  }
}

}  // namespace strata::detail
