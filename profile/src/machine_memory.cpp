#include <strata/profile/machine_memory.h>

#include <algorithm>

namespace strata {

TierBytes machine_memory(const MachineProfile* other_machine, const ComputeDevice& device,
                         const HostFacts& facts, const TierBytes& budgets) {
  const auto known = [](std::uint64_t bytes) { return bytes > 0 ? bytes : kUnlimited; };
  if (other_machine != nullptr)
    return {known(other_machine->memory[0]), known(other_machine->memory[1]),
            known(other_machine->memory[2])};
  const std::uint64_t ram =
      std::min(known(facts.total_ram_bytes), facts.cgroup_limit_bytes.value_or(kUnlimited));
  if (device.kind == DeviceKind::cuda) return {known(device.free_bytes), ram, kUnlimited};
  const auto beside = [&](std::uint64_t other) { return other >= ram ? ram : ram - other; };
  return {beside(budgets[1]), beside(budgets[0]), kUnlimited};
}

}  // namespace strata
