#include <strata/profile/measure.h>

#include <algorithm>

#include <strata/profile/memory_budgets.h>
#include <strata/runtime/memory/host_memory.h>
#include <strata/profile/machine_load.h>
#include <strata/profile/profile_cache.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/str.h>

#include "measure_parts.h"

namespace strata {

Result<MachineProfile> measure_machine(const MeasureOptions& options) {
  STRATA_TRY_ASSIGN(const std::unique_ptr<BenchFixture> fixture, BenchFixture::create(options));
  MachineProfile p;
  const CpuTime before = read_cpu_time();
  const HostFacts facts = read_host_facts();
  p.name = machine_name(fixture->device(), fixture->share().threads());
  p.source = str(kMeasuredSource, options.quick ? " --quick" : "");
  p.format = MachineProfile::kMeasuredFormat;
  p.cores = std::max(1, fixture->pool().threads());
  p.device_is_host = !fixture->is_gpu();
  const std::uint64_t share = std::max<std::uint64_t>(default_ram_budget(facts), 4096);
  p.memory[0] = fixture->is_gpu() ? default_gpu_budget(fixture->device().free_bytes) : share;
  p.memory[1] = fixture->is_gpu() ? 2 * share : share;
  const auto part = [&](const char* name, const auto& measure) -> Status {
    options.report(name);
    return measure().annotate(str("measuring ", name));
  };
  STRATA_TRY(part("GEMM", [&] { return measure_gemm(*fixture, options.quick, p); }));
  STRATA_TRY(part("attention", [&] { return measure_attention(*fixture, p); }));
  STRATA_TRY(part("memory-bound kernels", [&] { return measure_streaming(*fixture, p); }));
  STRATA_TRY(part("the link", [&] { return measure_link(*fixture, options.quick, p); }));
  STRATA_TRY(part("event latency", [&] { return measure_event_latency(*fixture, p); }));
  STRATA_TRY(part("RAM", [&] { return measure_ram(*fixture, p); }));
  STRATA_TRY(part("the optimizer", [&] { return measure_optimizer(*fixture, p); }));
  STRATA_TRY(part("ranks as threads", [&] { return measure_thread_network(*fixture, options.quick, p); }));
  if (!options.nvme_dirs.empty()) {
    STRATA_TRY(part("the NVMe tier", [&] { return measure_disk(*fixture, options, p); }));
    STRATA_TRY_ASSIGN(const std::uint64_t free, posix_io().free_bytes(options.nvme_dirs.front()));
    p.memory[2] = free / 2 / 4096 * 4096;
  }
  // These come last because a failure here may leave the device unusable.
  for (const OptionalMeasurement& choice : optional_measurements(*fixture)) {
    const Status measured = part(choice.name, [&] { return choice.measure(*fixture, p); });
    if (!measured.is_ok()) options.report(measured.message());
  }
  if (const std::string busy = busy_note(before, read_cpu_time()); !busy.empty()) {
    options.report(busy);
    p.source += ", on a busy machine";
  }
  return p;
}

}  // namespace strata
