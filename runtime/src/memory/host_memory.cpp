#include <strata/runtime/memory/host_memory.h>

#include <malloc.h>

#include <algorithm>

#include <strata/runtime/str.h>

namespace strata {
namespace {

// glibc reserves 64 MiB of address space for each thread's heap. Streams and I/O have threads besides the
// pool's.
constexpr std::uint64_t kAddressSpacePerThread = 64 * kMiB;
constexpr int kServiceThreads = 8;
// Generated code, tables of libraries, the program's own heap. A small run was measured to map 0.3 GiB in
// total.
constexpr std::uint64_t kAddressSpaceOverhead = 256 * kMiB;

std::uint64_t saturating_sub(std::uint64_t from, std::uint64_t bytes) { return from - std::min(from, bytes); }

}  // namespace

std::uint64_t default_ram_budget(const HostFacts& facts) {
  return std::min(available_for_slabs(facts), facts.usable_ram_bytes()) / 10 * 4 / kPageBytes * kPageBytes;
}

std::uint64_t available_for_slabs(const HostFacts& facts, std::uint64_t reclaimable_bytes) noexcept {
  if (facts.total_ram_bytes == 0) return UINT64_MAX;
  const std::uint64_t unallocated_overhead =
      saturating_sub(kProcessOverheadBytes, saturating_sub(facts.anonymous_rss_bytes, reclaimable_bytes));
  return saturating_sub(facts.usable_ram_bytes() + reclaimable_bytes, unallocated_overhead);
}

Status check_host_memory(std::uint64_t planned_bytes, int threads, const HostFacts& facts,
                         std::uint64_t reclaimable_bytes) {
  if (const std::uint64_t room = available_for_slabs(facts, reclaimable_bytes); planned_bytes > room)
    return Status::error(Code::does_not_fit,
                         str("the plan needs ", planned_bytes, " bytes (", format_bytes(planned_bytes),
                             ") in host memory, but there is room for only ", room, " (", format_bytes(room),
                             "): ", format_bytes(facts.usable_ram_bytes() + reclaimable_bytes), " are free ",
                             facts.cgroup_free_bytes.value_or(UINT64_MAX) < facts.available_ram_bytes
                                 ? str("in the memory cgroup, whose limit is ",
                                       format_bytes(facts.cgroup_limit_bytes.value_or(0)))
                                 : str("of the machine's ", format_bytes(facts.total_ram_bytes)),
                             ", some of which the process needs itself. Lower memory.device or "
                             "memory.pinned, or end other programs that "
                             "use memory"));
  if (!facts.address_space_limit_bytes) return Status::ok();
  const std::uint64_t limit = *facts.address_space_limit_bytes;
  const std::uint64_t left = limit - std::min(limit, facts.address_space_used_bytes);
  const std::uint64_t needed = planned_bytes + kAddressSpaceOverhead +
                               static_cast<std::uint64_t>(threads + kServiceThreads) * kAddressSpacePerThread;
  if (needed <= left) return Status::ok();
  return Status::error(
      Code::does_not_fit,
      str("the address space is limited (ulimit -v) to ", limit, " bytes, of which ", left, " (",
          format_bytes(left), ") are left; the plan and ", threads, " threads need ", needed, " (",
          format_bytes(needed), "): raise the limit, or use a memory cgroup instead"));
}

void trim_heap() noexcept {
#if defined(__GLIBC__)
  (void)::malloc_trim(0);
#endif
}

}  // namespace strata
