#include "io/posix_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <memory>
#include <new>
#include <utility>

#include <strata/runtime/io/errno_status.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

namespace strata::detail {
namespace {

constexpr std::uint32_t kSafeAlignment = 4096;  // if the kernel does not report it

DirectAlignment query_alignment(int fd) noexcept {
  DirectAlignment alignment{kSafeAlignment, kSafeAlignment};
#ifdef STATX_DIOALIGN
  struct statx info {};
  if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 && (info.stx_mask & STATX_DIOALIGN) != 0 &&
      info.stx_dio_offset_align != 0)
    alignment = {info.stx_dio_mem_align, info.stx_dio_offset_align};
#else
  static_cast<void>(fd);
#endif
  return alignment;
}

}  // namespace

PosixFile::PosixFile(int fd, std::string path, bool direct)
    : fd_(fd),
      path_(std::move(path)),
      direct_(direct),
      alignment_(direct ? query_alignment(fd) : DirectAlignment{}) {}

PosixFile::~PosixFile() {
  ::close(fd_);
}  // durable data has been synced already, so the result of close
   // does not matter

Result<std::size_t> PosixFile::read_at(std::uint64_t offset, std::span<std::byte> into) {
  for (;;) {
    const ssize_t n = ::pread(fd_, into.data(), into.size(), static_cast<off_t>(offset));
    if (n >= 0) return static_cast<std::size_t>(n);
    if (errno != EINTR)
      return errno_status(str("reading ", into.size(), " bytes at ", offset, " of"), path_, errno);
  }
}

Result<std::size_t> PosixFile::write_at(std::uint64_t offset, std::span<const std::byte> from) {
  for (;;) {
    const ssize_t n = ::pwrite(fd_, from.data(), from.size(), static_cast<off_t>(offset));
    if (n >= 0) return static_cast<std::size_t>(n);
    if (errno != EINTR)
      return errno_status(str("writing ", from.size(), " bytes at ", offset, " of"), path_, errno);
  }
}

Status PosixFile::sync() {
  if (const int earlier = sync_error_.load(std::memory_order_relaxed); earlier != 0)
    return errno_status("syncing (failed before, never retried)", path_, earlier);
  if (::fsync(fd_) == 0) return Status::ok();
  const int error = errno;
  sync_error_.store(error, std::memory_order_relaxed);
  return errno_status("syncing", path_, error);
}

Result<std::uint64_t> PosixFile::size() {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) return errno_status("reading the size of", path_, errno);
  return static_cast<std::uint64_t>(info.st_size);
}

Status PosixFile::allocate(std::uint64_t bytes) {
  if (bytes == 0) return Status::ok();
  // Check the free space first: fallocate uses up all that is left before it fails, and other processes would
  // find the disk full.
  struct stat present {};
  struct statvfs disk {};
  if (::fstat(fd_, &present) != 0 || ::fstatvfs(fd_, &disk) != 0)
    return errno_status("reading the size of", path_, errno);
  const std::uint64_t held = static_cast<std::uint64_t>(present.st_blocks) * 512;
  const std::uint64_t free = std::uint64_t{disk.f_bavail} * disk.f_frsize;
  int error = held + free < bytes ? ENOSPC : 0;
  while (error == 0 && ::fallocate(fd_, 0, 0, static_cast<off_t>(bytes)) != 0) {
    if (errno != EINTR) error = errno;
  }
  if (error == 0) return Status::ok();
  if (error == EOPNOTSUPP) return write_zeros(static_cast<std::uint64_t>(present.st_size), bytes);
  Status status = errno_status("allocating", path_, error);
  if (status.code() != Code::no_space) return status;
  return Status::error(Code::no_space,
                       str(status.message(), ": ", bytes, " bytes (", format_bytes(bytes), ") needed, ", held,
                           " already allocated, ", free, " (", format_bytes(free), ") free"));
}

Status PosixFile::lock() {
  while (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK)
      return Status::error(Code::invalid, str(path_, " is locked by another process"));
    if (errno != EINTR) return errno_status("locking", path_, errno);
  }
  return Status::ok();
}

Result<std::string> PosixFile::current_path() const {
  constexpr std::string_view kRemoved = " (deleted)";
  char text[PATH_MAX];
  const std::string link = str("/proc/self/fd/", fd_);
  const ssize_t n = ::readlink(link.c_str(), text, sizeof text);
  if (n < 0) return errno_status("reading the path of", path_, errno);
  std::string place(text, static_cast<std::size_t>(n));
  struct stat info {};
  if (::fstat(fd_, &info) != 0) return errno_status("reading the type of", path_, errno);
  if (info.st_nlink == 0 || place.ends_with(kRemoved))
    return Status::error(Code::not_found, str(path_, " was removed"));
  return place;
}

// For file systems without fallocate. Appends whole aligned blocks, as direct files require.
Status PosixFile::write_zeros(std::uint64_t from, std::uint64_t to) {
  const std::size_t align = std::max<std::size_t>(alignment_.offset, alignment_.memory);
  const std::size_t block = round_up(kMiB, align);
  const auto free_block = [align](std::byte* p) { ::operator delete[](p, std::align_val_t(align)); };
  const std::unique_ptr<std::byte[], decltype(free_block)> zeros(
      static_cast<std::byte*>(::operator new[](block, std::align_val_t(align), std::nothrow)), free_block);
  if (zeros == nullptr)
    return Status::error(Code::out_of_memory, str("allocating ", path_, ": ", block, " bytes"));
  std::fill_n(zeros.get(), block, std::byte{0});
  for (std::uint64_t at = from / align * align; at < to; at += block) {
    const std::size_t n = static_cast<std::size_t>(std::min<std::uint64_t>(block, round_up(to - at, align)));
    STRATA_TRY(write_all(*this, at, {zeros.get(), n}).annotate(str("allocating ", to, " bytes")));
  }
  return Status::ok();
}

}  // namespace strata::detail
