#include "machine/measure.h"

#include <algorithm>

#include <strata/runtime/io.h>
#include <strata/runtime/str.h>

#include "machine/machine_load.h"
#include "machine/measure_parts.h"
#include "machine/profile_cache.h"
#include "training/host_memory.h"

namespace strata::cli {

Result<MachineProfile> measure_machine(const MeasureOptions& options) {
  STRATA_TRY_ASSIGN(const std::unique_ptr<MeasureRig> rig, MeasureRig::create(options));
  MachineProfile p;
  const CpuTime before = read_cpu_time();
  const HostFacts facts = read_host_facts();
  p.name = machine_name(rig->device(), rig->share().threads());
  p.source = str("measured by strata bench", options.quick ? " --quick" : "");
  p.cores = std::max(1, rig->pool().threads());
  p.device_is_host = !rig->is_gpu();
  const std::uint64_t share = std::max<std::uint64_t>(usual_budget(facts), 4096);
  p.memory[0] = rig->is_gpu() ? usual_gpu_budget(rig->device().free_bytes) : share;
  p.memory[1] = rig->is_gpu() ? 2 * share : share;
  const auto part = [&](const char* name, const auto& measure) -> Status {
    options.tell(name);
    return measure().annotate(str("measuring ", name));
  };
  STRATA_TRY(part("products", [&] { return measure_products(*rig, options.quick, p); }));
  STRATA_TRY(part("attention", [&] { return measure_attention(*rig, p); }));
  STRATA_TRY(part("norms and activations", [&] { return measure_streaming(*rig, p); }));
  STRATA_TRY(part("the link", [&] { return measure_link(*rig, options.quick, p); }));
  STRATA_TRY(part("queues that wait for each other", [&] { return measure_handing_over(*rig, p); }));
  STRATA_TRY(part("RAM", [&] { return measure_ram(*rig, options.quick, p); }));
  STRATA_TRY(part("the optimizer", [&] { return measure_optimizer(*rig, options.quick, p); }));
  if (!options.nvme_dirs.empty()) {
    STRATA_TRY(part("the slow tier", [&] { return measure_disk(*rig, options, p); }));
    STRATA_TRY_ASSIGN(const std::uint64_t free, posix_io().free_bytes(options.nvme_dirs.front()));
    p.memory[2] = free / 2 / 4096 * 4096;
  }
  // Last: what fails here may take the device with it.
  if (options.choices)
    for (const MeasuredChoice& choice : choices_of(*rig)) {
      const Status measured = part(choice.name, [&] { return choice.measure(*rig, p); });
      if (!measured.is_ok()) options.tell(measured.message());
    }
  if (const std::string busy = busy_note(before, read_cpu_time()); !busy.empty()) {
    options.tell(busy);
    p.source += ", on a busy machine";
  }
  return p;
}

}  // namespace strata::cli
