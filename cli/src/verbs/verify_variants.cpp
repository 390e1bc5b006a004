#include "verbs/verify_variants.h"

#include <strata/config/load_config.h>

namespace strata::cli {

// The first variant is the reference. `disk` places all chunks on NVMe; only the working window is in other
// tiers.
std::vector<VerifyVariant> verify_variants() {
  const std::vector<std::string> all_device = device_only_overrides();
  const std::vector<std::string> ram = {
      "memory.device=unlimited", "memory.pinned=unlimited",  "memory.nvme=0",
      "offload.policy=pinned",   "offload.activations=auto", "offload.activation_share=auto"};
  const std::vector<std::string> disk = {"memory.device=unlimited", "memory.pinned=unlimited",
                                         "memory.nvme=unlimited", "offload.policy=nvme"};
  const auto with = [](std::vector<std::string> list, const std::vector<std::string>& more) {
    list.insert(list.end(), more.begin(), more.end());
    return list;
  };
  return {
      {"all on the device", all_device},
      {"states in RAM", ram},
      {"three tiers as configured", {}},
      {"all but the working window on nvme", disk},
      {"three tiers, small chunks", {"offload.chunk=65536"}},
      {"nvme, chunks of 131072", with(disk, {"offload.chunk=131072"})},
      {"RAM, chunks of 524288", with(ram, {"offload.chunk=524288"})},
      {"three tiers, no prefetch", {"offload.prefetch=0"}},
      {"nvme, prefetch 8", with(disk, {"offload.prefetch=8"})},
      {"three tiers, serial step", {"offload.step_mode=serial"}},
      {"RAM, two-phase step", with(ram, {"offload.step_mode=two_phase"})},
      {"RAM, speculative step", with(ram, {"offload.step_mode=speculative", "offload.undo_log=auto"})},
      {"RAM, a small undo log", with(ram, {"offload.step_mode=speculative", "offload.undo_log=1MiB"})},
      {"three tiers, hybrid step", {"offload.step_mode=hybrid", "offload.undo_log=auto"}},
      {"three tiers, 1 thread", {"cpu.threads=1"}},
      {"three tiers, 2 threads", {"cpu.threads=2"}},
      {"device, no recomputation", with(all_device, {"train.recompute=none"})},
      {"RAM, selective recomputation", with(ram, {"train.recompute=selective"})},
      {"RAM, full recomputation", with(ram, {"train.recompute=full"})},
      {"RAM, layer by layer", with(ram, {"offload.micro_batch_order=breadth_first"})},
      {"RAM, activations offloaded", with(ram, {"offload.activations=pinned", "train.recompute=none"})},
      {"RAM, half of them offloaded",
       with(ram, {"offload.activations=pinned", "offload.activation_share=0.5", "train.recompute=none"})},
      {"RAM, gradients on the device", with(ram, {"offload.gradients=device"})},
      {"RAM, block inputs offloaded", with(ram, {"offload.activations=pinned", "train.recompute=full"})},
      {"nvme, activations too", with(disk, {"offload.activations=nvme", "train.recompute=selective"})},
      {"three tiers, I/O threads", {"io.engine=threads"}},
      {"nvme, io_uring where it works", with(disk, {"io.engine=auto"})},
  };
}

}  // namespace strata::cli
