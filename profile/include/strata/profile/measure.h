#pragma once

#include <cstdint>

#include <strata/offload/machine_profile.h>
#include <strata/profile/measure_options.h>
#include <strata/runtime/status.h>

namespace strata {

/// Measures this machine the way runs use it: GEMM by size, attention, memory-bound kernels, the link, RAM,
/// the optimizer, and the NVMe tier through its store. Takes about half a minute on an idle machine. Errors
/// name the measurement that failed. A failed measurement of an optional kernel is reported, and its rate
/// stays unknown.
Result<MachineProfile> measure_machine(const MeasureOptions& options);

/// Bytes of RAM that the bandwidth and the optimizer are measured over: at least 1 GiB and eight times the
/// caches, so that states come from RAM as in a run, but at most a quarter of the free RAM.
std::uint64_t ram_working_set(std::uint64_t l3_bytes, std::uint64_t free_bytes) noexcept;

}  // namespace strata
