#pragma once

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <cstddef>

namespace strata::test {

/// Installs a filter that makes a system call fail in this process from now on, as sandboxes do. It cannot be
/// removed, so use it in child processes. Returns false if the kernel refuses the filter itself.
inline bool install_filter(sock_filter* code, unsigned short size) {
  const sock_fprog filter{size, code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/// Makes io_uring_setup fail with EPERM, as container defaults do.
inline bool refuse_uring() {
  std::array<sock_filter, 4> code{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  return install_filter(code.data(), code.size());
}

/// The bit that distinguishes O_TMPFILE from O_DIRECTORY.
inline constexpr unsigned kTmpfileFlag = O_TMPFILE & ~O_DIRECTORY;

/// Makes openat fail with `error` if any bit of `flag` is set, as on file systems that lack the feature.
inline bool refuse_open_flag(unsigned flag, unsigned error) {
  std::array<sock_filter, 6> code{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_openat, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, flag, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  return install_filter(code.data(), code.size());
}

}  // namespace strata::test
