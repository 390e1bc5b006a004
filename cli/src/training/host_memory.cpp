#include "training/host_memory.h"

#include <algorithm>

#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

namespace strata::cli {
namespace {

// glibc reserves 64 MiB of addresses for the heap of a thread; streams and I/O have some beside the pool's.
constexpr std::uint64_t kAddressesOfAThread = 64 * kMiB;
constexpr int kServiceThreads = 8;
// Generated code, tables of libraries, the program's own heap. A small run was measured to map 0.3 GiB in
// all.
constexpr std::uint64_t kAddressesBeside = 256 * kMiB;

}  // namespace

std::uint64_t usual_budget(const HostFacts& facts) {
  constexpr std::uint64_t kPage = 4096;
  return facts.usable_ram_bytes() / 10 * 4 / kPage * kPage;
}

std::uint64_t usual_gpu_budget(std::uint64_t free_bytes) {
  constexpr std::uint64_t kPage = 4096;
  return free_bytes / 10 * 9 / kPage * kPage;
}

Status check_gpu_memory(std::uint64_t planned_bytes, const ComputeDevice& gpu) {
  constexpr std::uint64_t kKernels = 256 * kMiB;  // code that is loaded when it is first launched
  if (planned_bytes + kKernels <= gpu.free_bytes) return Status::ok();
  return Status::error(
      Code::does_not_fit,
      str("the plan keeps ", planned_bytes, " bytes (", format_bytes(planned_bytes), ") on ", gpu.name,
          ", where ", gpu.free_bytes, " (", format_bytes(gpu.free_bytes),
          ") are free, and kernels take some of it: lower memory.device, or end what else uses the GPU"));
}

Status check_host_memory(std::uint64_t planned_bytes, int threads, const HostFacts& facts) {
  const std::uint64_t cgroup = facts.cgroup_limit_bytes.value_or(UINT64_MAX);
  const std::uint64_t ram = facts.total_ram_bytes == 0 ? UINT64_MAX : facts.total_ram_bytes;
  if (planned_bytes > std::min(cgroup, ram))
    return Status::error(
        Code::does_not_fit,
        str("the plan keeps ", planned_bytes, " bytes (", format_bytes(planned_bytes), ") in host memory; ",
            cgroup < ram ? "the cgroup's limit is " : "there are ", std::min(cgroup, ram), " (",
            format_bytes(std::min(cgroup, ram)), "): lower memory.device or memory.pinned"));
  if (!facts.address_space_limit_bytes) return Status::ok();
  const std::uint64_t limit = *facts.address_space_limit_bytes;
  const std::uint64_t left = limit - std::min(limit, facts.address_space_used_bytes);
  const std::uint64_t needed = planned_bytes + kAddressesBeside +
                               static_cast<std::uint64_t>(threads + kServiceThreads) * kAddressesOfAThread;
  if (needed <= left) return Status::ok();
  return Status::error(
      Code::does_not_fit,
      str("the address space is limited (ulimit -v) to ", limit, " bytes, of which ", left, " (",
          format_bytes(left), ") are left; the plan and ", threads, " threads ask for ", needed, " (",
          format_bytes(needed), "): raise the limit, or use a memory cgroup instead"));
}

}  // namespace strata::cli
