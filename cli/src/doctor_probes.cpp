#include "doctor.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include <strata/plan/starter_config.h>
#include <strata/config/train_schema.h>
#include <strata/runtime/config/config.h>
#include <strata/runtime/str.h>

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

struct Library {
  explicit Library(const char* file) : handle(::dlopen(file, RTLD_LAZY | RTLD_LOCAL)) {}
  ~Library() {
    if (handle != nullptr) ::dlclose(handle);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  void* const handle;
};

/// Writes one aligned block to a new unnamed file. Returns 0 or errno.
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
  const int error = try_write(dir, 0);  // some file systems support everything but O_DIRECT
  if (error == 0) return false;
  const Code code = error == ENOENT || error == ENOTDIR ? Code::not_found
                    : error == ENOSPC                   ? Code::no_space
                                                        : Code::io_error;
  return Status::error(code, str(dir, ": ", std::strerror(error)));
}

std::vector<std::string> probe_collectives() {
  std::vector<std::string> found;
  if (const Library nccl("libnccl.so.2"); nccl.handle != nullptr) {
    // According to NCCL's documentation the version is major * 10000 + minor * 100 + patch.
    int version = 0;
    const auto get_version = reinterpret_cast<int (*)(int*)>(::dlsym(nccl.handle, "ncclGetVersion"));
    const bool answers = get_version != nullptr && get_version(&version) == 0;
    found.push_back(answers ? str("NCCL ", version / 10000, ".", version / 100 % 100, ".", version % 100)
                            : std::string("NCCL (unknown version)"));
  }
  for (const auto& [file, name] : {std::pair{"libmpi.so.40", "Open MPI"}, std::pair{"libmpi.so.12", "MPICH"}})
    if (const Library mpi(file); mpi.handle != nullptr) found.emplace_back(name);
  return found;
}

DoctorFacts gather_facts(const std::vector<std::string>& nvme_dirs,
                         const std::vector<std::string>& environment) {
  DoctorFacts facts;
  facts.cpu = read_cpu_features();
  facts.topology = read_topology();
  facts.share = process_core_share(environment);
  facts.host = read_host_facts();
  facts.uring = probe_io_uring();
  for (const std::string& dir : nvme_dirs) facts.nvme_dirs.push_back({dir, probe_direct(dir)});
  facts.cuda = cuda_probe();
  facts.collectives = probe_collectives();
  const int threads = facts.share.value_or(CoreShare{}).threads();
  facts.profile = load_local_profile(posix_io(), environment, starter_backend(), threads);
  facts.environment = ConfigTree::build(train_schema(), {.environment = environment}).status();
  return facts;
}

}  // namespace strata::cli
