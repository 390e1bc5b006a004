#include "doctor.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <fcntl.h>
#include <linux/io_uring.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <strata/runtime/config.h>
#include <strata/runtime/str.h>

#include "train_config.h"

namespace strata::cli {
namespace {

constexpr std::size_t kBlockBytes = 4096;

struct Descriptor {
  explicit Descriptor(int n) : fd(n) {}
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  const int fd;
};

/// 0, or the errno of writing one aligned block to a new unnamed file.
int try_write(const std::string& dir, int flags) {
  const Descriptor file(::open(dir.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600));
  if (file.fd < 0) return errno;
  const std::unique_ptr<void, decltype(&std::free)> block(std::aligned_alloc(kBlockBytes, kBlockBytes),
                                                          &std::free);
  if (block == nullptr) return ENOMEM;
  std::memset(block.get(), 0x5A, kBlockBytes);
  const ssize_t n = ::pwrite(file.fd, block.get(), kBlockBytes, 0);
  if (n < 0) return errno;
  return n == static_cast<ssize_t>(kBlockBytes) ? 0 : ENOSPC;
}

}  // namespace

Status probe_io_uring() {
  io_uring_params params{};
  const long fd = ::syscall(SYS_io_uring_setup, 1, &params);
  if (fd < 0) return Status::error(Code::unsupported, std::strerror(errno));
  ::close(static_cast<int>(fd));
  return Status::ok();
}

Result<bool> probe_direct(const std::string& dir) {
  if (try_write(dir, O_DIRECT) == 0) return true;
  const int error = try_write(dir, 0);  // some file systems refuse O_DIRECT alone
  if (error == 0) return false;
  const Code code = error == ENOENT || error == ENOTDIR ? Code::not_found
                    : error == ENOSPC                   ? Code::no_space
                                                        : Code::io_error;
  return Status::error(code, str(dir, ": ", std::strerror(error)));
}

DoctorFacts gather_facts(const std::string& nvme_dir, const std::vector<std::string>& environment) {
  DoctorFacts facts;
  facts.cpu = read_cpu_features();
  facts.topology = read_topology();
  facts.share = share_of_this_process(environment);
  facts.host = read_host_facts();
  facts.uring = probe_io_uring();
  facts.nvme_dir = nvme_dir;
  if (!nvme_dir.empty()) facts.direct = probe_direct(nvme_dir);
  facts.cuda = cuda_probe();
  const int threads = facts.share.value_or(CoreShare{}).threads();
  facts.profile = profile_here(posix_io(), environment, "host", threads);
  facts.environment = ConfigTree::build(train_schema(), {.environment = environment}).status();
  return facts;
}

}  // namespace strata::cli
