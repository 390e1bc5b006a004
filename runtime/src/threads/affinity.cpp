#include "threads/affinity.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include <sched.h>

#include <strata/runtime/str.h>

#include "config/number_list.h"

namespace strata::detail {
namespace {

constexpr int kMaxCpus = 1 << 16;

struct FreeSet {
  void operator()(cpu_set_t* set) const noexcept { CPU_FREE(set); }
};
// A plain cpu_set_t holds 1024 CPUs, and sched_getaffinity fails on larger machines.
using CpuSet = std::unique_ptr<cpu_set_t, FreeSet>;

}  // namespace

std::vector<int> affinity_mask() {
  std::vector<int> cpus;
  for (int room = CPU_SETSIZE; room <= kMaxCpus; room *= 2) {
    const CpuSet set(CPU_ALLOC(static_cast<std::size_t>(room)));
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(room));
    if (set == nullptr) break;
    CPU_ZERO_S(bytes, set.get());
    if (::sched_getaffinity(0, bytes, set.get()) != 0) {
      if (errno == EINVAL) continue;
      break;
    }
    for (int cpu = 0; cpu < room; ++cpu)
      if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes, set.get())) cpus.push_back(cpu);
    break;
  }
  return cpus;
}

Status bind_thread(pthread_t thread, std::span<const int> cpus) {
  const auto room = static_cast<std::size_t>(*std::max_element(cpus.begin(), cpus.end())) + 1;
  const CpuSet set(CPU_ALLOC(room));
  const std::size_t bytes = CPU_ALLOC_SIZE(room);
  int error = ENOMEM;
  if (set != nullptr) {
    CPU_ZERO_S(bytes, set.get());
    for (const int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), bytes, set.get());
    error = ::pthread_setaffinity_np(thread, bytes, set.get());
  }
  if (error == 0) return {};
  return Status::error(Code::unsupported,
                       str("binding a thread to CPUs ", number_list(cpus), ": ", std::strerror(error)));
}

}  // namespace strata::detail
