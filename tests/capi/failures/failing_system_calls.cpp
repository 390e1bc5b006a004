// Replaces system calls of the code that is linked with -Wl,--wrap (CMakeLists.txt lists them), and
// pthread_create of the C++ library.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#ifdef STRATA_HAVE_URING
#include <liburing.h>
#endif

#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <string_view>

#include "capi/failures/failures.h"

using strata::test::fails;
using strata::test::Failure;

namespace {

// Half of a transfer, in whole units of O_DIRECT if there are several.
std::size_t half_of(std::size_t bytes) {
  constexpr std::size_t kAlign = 4096;
  return bytes >= 2 * kAlign ? bytes / 2 / kAlign * kAlign : bytes / 2;
}

bool fails_with(int error) {
  if (!fails(Failure::io)) return false;
  errno = error;
  return true;
}
bool is_full() {
  if (!fails(Failure::no_space)) return false;
  errno = ENOSPC;
  return true;
}

}  // namespace

extern "C" {

#define WRAPPED(result, name, ...)   \
  result __real_##name(__VA_ARGS__); \
  result __wrap_##name(__VA_ARGS__)

WRAPPED(ssize_t, pread, int fd, void* into, size_t n, off_t at) {
  if (fails_with(EIO)) return -1;
  return __real_pread(fd, into, n > 1 && fails(Failure::short_io) ? half_of(n) : n, at);
}
WRAPPED(ssize_t, pwrite, int fd, const void* from, size_t n, off_t at) {
  if (fails_with(EIO) || is_full()) return -1;
  return __real_pwrite(fd, from, n > 1 && fails(Failure::short_io) ? half_of(n) : n, at);
}
WRAPPED(int, fallocate, int fd, int mode, off_t at, off_t n) {
  return fails_with(ENOSPC) || is_full() ? -1 : __real_fallocate(fd, mode, at, n);
}
WRAPPED(int, fsync, int fd) { return fails_with(EIO) || is_full() ? -1 : __real_fsync(fd); }
WRAPPED(int, rename, const char* from, const char* to) {
  return fails_with(EIO) || is_full() ? -1 : __real_rename(from, to);
}
WRAPPED(int, mkdir, const char* path, mode_t mode) {
  return fails_with(ENOSPC) ? -1 : __real_mkdir(path, mode);
}
WRAPPED(int, fstat, int fd, struct stat* info) { return fails_with(EIO) ? -1 : __real_fstat(fd, info); }
WRAPPED(int, fstatvfs, int fd, struct statvfs* info) {
  return fails_with(EIO) ? -1 : __real_fstatvfs(fd, info);
}
WRAPPED(int, statvfs, const char* path, struct statvfs* info) {
  return fails_with(EIO) ? -1 : __real_statvfs(path, info);
}
WRAPPED(DIR*, opendir, const char* path) { return fails_with(EMFILE) ? nullptr : __real_opendir(path); }
WRAPPED(dirent*, readdir, DIR* dir) { return fails_with(EIO) ? nullptr : __real_readdir(dir); }
WRAPPED(int, flock, int fd, int operation) { return fails_with(EIO) ? -1 : __real_flock(fd, operation); }

int __real_open(const char* path, int flags, ...);
int __wrap_open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const auto mode = static_cast<mode_t>(va_arg(list, unsigned));  // always given by the code wrapped here
  va_end(list);
  return fails_with(EMFILE) ? -1 : __real_open(path, flags, mode);
}

WRAPPED(void*, mmap, void* at, size_t n, int protection, int flags, int fd, off_t offset) {
  if (fails(Failure::mapping)) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  void* const p = __real_mmap(at, n, protection, flags, fd, offset);
  if (p != MAP_FAILED) strata::test::note_mapped(static_cast<std::int64_t>(n));
  return p;
}
WRAPPED(int, munmap, void* at, size_t n) {
  strata::test::note_mapped(-static_cast<std::int64_t>(n));
  return __real_munmap(at, n);
}

#ifdef STRATA_HAVE_URING
WRAPPED(int, io_uring_queue_init, unsigned entries, io_uring* ring, unsigned flags) {
  if (strata::test::is_uring_refused()) return -ENOSYS;
  return fails(Failure::io) ? -ENOMEM : __real_io_uring_queue_init(entries, ring, flags);
}
// Without these the ring does the same more slowly.
WRAPPED(int, io_uring_register_files, io_uring* ring, const int* files, unsigned n) {
  return fails(Failure::io) ? -ENOMEM : __real_io_uring_register_files(ring, files, n);
}
WRAPPED(int, io_uring_register_buffers_sparse, io_uring* ring, unsigned n) {
  return fails(Failure::io) ? -ENOMEM : __real_io_uring_register_buffers_sparse(ring, n);
}

// Results are changed in the completion queue, which the program maps. The oldest of a few that arrive
// between two calls may be missed, which the next run's may not.
WRAPPED(int, io_uring_submit_and_wait, io_uring* ring, unsigned wait_nr) {
  if (fails(Failure::short_io)) return -EAGAIN;  // nothing was submitted yet
  const int n = __real_io_uring_submit_and_wait(ring, wait_nr);
  unsigned head = 0;
  io_uring_cqe* cqe = nullptr;
  io_uring_for_each_cqe(ring, head, cqe) {
    if (io_uring_cqe_get_data64(cqe) == ~std::uint64_t{0} || cqe->res <= 0) continue;  // a wake-up
    if (fails(Failure::io)) cqe->res = -EIO;
    if (fails(Failure::short_io)) cqe->res = static_cast<int>(half_of(static_cast<std::size_t>(cqe->res)));
  }
  return n;
}

#endif

// Fails those of std::thread alone, and none of other libraries.
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto real = reinterpret_cast<Create>(::dlsym(RTLD_NEXT, "pthread_create"));
  Dl_info caller{};
  if (::dladdr(__builtin_return_address(0), &caller) != 0 && caller.dli_fname != nullptr &&
      std::string_view(caller.dli_fname).find("libstdc++") != std::string_view::npos &&
      fails(Failure::thread))
    return EAGAIN;
  return real(thread, attributes, run, argument);
}

}  // extern "C"
