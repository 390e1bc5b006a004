#include <strata/profile/memory_budgets.h>

#include <algorithm>
#include <vector>

#include <strata/offload/placement_planner.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

std::uint64_t saturating_sub(std::uint64_t from, std::uint64_t bytes) { return from - std::min(from, bytes); }

}  // namespace

std::uint64_t default_gpu_budget(std::uint64_t free_bytes) {
  return free_bytes / 10 * 9 / kPageBytes * kPageBytes;
}

Status check_gpu_memory(std::uint64_t planned_bytes, const ComputeDevice& gpu) {
  constexpr std::uint64_t kKernels = 256 * kMiB;  // kernels are loaded at their first launch
  if (planned_bytes + kKernels <= gpu.free_bytes) return Status::ok();
  return Status::error(
      Code::does_not_fit,
      str("the plan needs ", planned_bytes, " bytes (", format_bytes(planned_bytes), ") on ", gpu.name,
          ", but only ", gpu.free_bytes, " (", format_bytes(gpu.free_bytes),
          ") are free, some of which kernels need: lower memory.device, or end other programs on the GPU"));
}

// Keeps the plan's chunk layout. A new plan may use smaller chunks, which need even less memory, so the
// budgets that fit here also fit then.
std::optional<TierBytes> fit_budgets(const RunPlan& plan, std::uint64_t ram_bytes, bool device_is_ram) {
  const std::uint64_t ram = ram_bytes / kPageBytes * kPageBytes;
  const TierBytes planned = placement_bytes(plan.layout, plan.trace, plan.placement);
  AccessTrace trace = plan.trace;
  trace.pinned_fixed_bytes -= plan.undo.bytes;  // the undo log is sized from what is left
  const auto with = [&](std::uint64_t device, std::uint64_t pinned) -> std::optional<TierBytes> {
    const PlacementRequest request = {{device, pinned, plan.options.budgets[2]},
                                      plan.options.policy,
                                      plan.options.prefetch.value_or(0),
                                      plan.options.gradients};
    if (!find_placement(plan.layout, trace, request)) return std::nullopt;
    return request.budgets;
  };
  if (!device_is_ram) return with(plan.options.budgets[0], ram);
  std::vector<std::uint64_t> devices = {std::min(planned[0], ram), saturating_sub(ram, planned[1])};
  constexpr std::uint64_t kParts = 16;
  for (std::uint64_t part = 1; part < kParts; ++part)
    devices.push_back(ram / kParts * part / kPageBytes * kPageBytes);
  std::sort(devices.begin() + 2, devices.end(), [&](std::uint64_t a, std::uint64_t b) {
    const auto off = [&](std::uint64_t bytes) {
      return std::max(bytes, planned[0]) - std::min(bytes, planned[0]);
    };
    return off(a) < off(b);
  });
  for (const std::uint64_t device : devices)
    if (const auto budgets = with(device, ram - device)) return budgets;
  return std::nullopt;
}

}  // namespace strata
