#pragma once

#include <cstdint>
#include <optional>

#include <strata/engine/engine.h>
#include <strata/profile/compute_device.h>
#include <strata/runtime/status.h>
#include <strata/runtime/units.h>

namespace strata {

/// The default budget of a GPU's memory: 90 % of the free bytes. Kernels are loaded into the rest.
std::uint64_t default_gpu_budget(std::uint64_t free_bytes);

/// Checks that `planned_bytes` and room for kernels are free on the GPU. Errors: `does_not_fit` with both
/// numbers.
Status check_gpu_memory(std::uint64_t planned_bytes, const ComputeDevice& gpu);

/// Budgets for the same run with which its slabs use at most `ram_bytes` of RAM. The device's budget stays as
/// planned if possible; otherwise it is the nearest that works. `device_is_ram`: the device's slabs count
/// towards `ram_bytes`. Nothing if no such budgets exist.
std::optional<TierBytes> fit_budgets(const RunPlan& plan, std::uint64_t ram_bytes, bool device_is_ram);

}  // namespace strata
