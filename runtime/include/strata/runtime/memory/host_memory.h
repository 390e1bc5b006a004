#pragma once

#include <cstdint>

#include <strata/runtime/status.h>
#include <strata/runtime/threads/topology.h>
#include <strata/runtime/units.h>

namespace strata {

/// The default budget of a tier in RAM: 40 % of the free RAM, in whole pages.
std::uint64_t default_ram_budget(const HostFacts& facts);
/// Host memory that a run uses besides its slabs: generated code of libraries, GEMM workspace, queues, trace
/// ring buffers, tables. Runs were measured to use less. Contract C3 allows 64 MiB; the difference is left
/// for memory that the operating system kernel holds for the process.
inline constexpr std::uint64_t kProcessOverheadBytes = 48 * kMiB;

/// How many bytes of slabs fit in RAM now: what is free in the machine and in its cgroups, plus
/// `reclaimable_bytes` that this process holds and will free, minus the part of kProcessOverheadBytes that
/// the process has not allocated yet. UINT64_MAX if the size of RAM is unknown.
std::uint64_t available_for_slabs(const HostFacts& facts, std::uint64_t reclaimable_bytes = 0) noexcept;

/// Checks that a run with `planned_bytes` in host memory and `threads` threads can start on this machine now.
/// Without enough free memory the OOM killer would end it, or another process, in the middle of training. If
/// the address space (RLIMIT_AS) has no room for the plan and for what libraries map, their code generators
/// crash when mmap fails. Errors: `does_not_fit` with both numbers.
Status check_host_memory(std::uint64_t planned_bytes, int threads, const HostFacts& facts,
                         std::uint64_t reclaimable_bytes = 0);

/// Returns free heap memory to the operating system. Call it before slabs are allocated: reading a large
/// tokenizer temporarily uses eight times the size of its file, which glibc would otherwise keep.
void trim_heap() noexcept;

}  // namespace strata
