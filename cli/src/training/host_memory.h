#pragma once

#include <cstdint>
#include <optional>

#include <strata/engine/engine.h>
#include <strata/runtime/status.h>
#include <strata/runtime/topology.h>
#include <strata/runtime/units.h>

#include "machine/compute_device.h"

namespace strata::cli {

/// What a tier of RAM has by itself: two fifths of what is free, in whole pages.
std::uint64_t default_ram_budget(const HostFacts& facts);
/// The same of a GPU's memory: nine tenths; kernels are loaded into the rest.
std::uint64_t default_gpu_budget(std::uint64_t free_bytes);

/// Whether so much is free on a GPU. Errors: `does_not_fit` with both numbers.
Status check_gpu_memory(std::uint64_t planned_bytes, const ComputeDevice& gpu);

/// What a run holds in host memory beside its slabs: code that libraries generate, scratch of products,
/// queues, rings of a trace, tables. Runs were measured to hold less; contract C3 allows 64 MiB, in which
/// there is then room for what the kernel holds for the process.
inline constexpr std::uint64_t kProcessOverheadBytes = 48 * kMiB;

/// The bytes of slabs that RAM has room for now, as are free in the machine and in its cgroups, once
/// `reclaimable_bytes` of what this process holds is: less what the process will hold beside them and does
/// not hold yet. The largest number where nothing is known of RAM.
std::uint64_t available_for_slabs(const HostFacts& facts, std::uint64_t reclaimable_bytes = 0) noexcept;

/// Whether a run that keeps `planned_bytes` in host memory and works with `threads` may start on this machine
/// now: beyond what is free the kernel would kill it, or another, in its midst; in an address space
/// (RLIMIT_AS) without room for the plan and for what libraries map beside it, their code generators do not
/// survive a refusal. Errors: `does_not_fit` with both numbers.
Status check_host_memory(std::uint64_t planned_bytes, int threads, const HostFacts& facts,
                         std::uint64_t reclaimable_bytes = 0);

/// Gives the kernel what the heap holds free. Before slabs are taken: to read a large tokenizer takes eight
/// times its file for a while, and glibc would keep that.
void trim_heap() noexcept;

/// Budgets of the same run whose slabs take at most `ram_bytes` of RAM: the device's as it is planned where
/// that can be, else the nearest. `device_is_ram`: the device's count too. Nothing where there are none.
std::optional<TierBytes> fit_budgets(const RunPlan& plan, std::uint64_t ram_bytes, bool device_is_ram);

}  // namespace strata::cli
