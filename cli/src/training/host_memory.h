#pragma once

#include <cstdint>

#include <strata/runtime/status.h>
#include <strata/runtime/topology.h>

#include "machine/compute_device.h"

namespace strata::cli {

/// What a tier of RAM has by itself: two fifths of what is free, in whole pages.
std::uint64_t usual_budget(const HostFacts& facts);
/// The same of a GPU's memory: nine tenths; kernels are loaded into the rest.
std::uint64_t usual_gpu_budget(std::uint64_t free_bytes);

/// Whether so much is free on a GPU. Errors: `does_not_fit` with both numbers.
Status check_gpu_memory(std::uint64_t planned_bytes, const ComputeDevice& gpu);

/// Whether a run that keeps `planned_bytes` in host memory and works with `threads` may start on this
/// machine. Only what can never be is refused: more than the RAM or the cgroup's limit, of which the kernel
/// would kill the run in its midst; or an address space (RLIMIT_AS) without room for the plan and for what
/// libraries map beside it, whose code generators do not survive a refusal. Errors: `does_not_fit` with
/// both numbers.
Status check_host_memory(std::uint64_t planned_bytes, int threads, const HostFacts& facts);

}  // namespace strata::cli
