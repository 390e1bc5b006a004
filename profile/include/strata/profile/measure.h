#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <strata/offload/machine_profile.h>
#include <strata/runtime/status.h>

namespace strata {

struct MeasureOptions {
  std::vector<std::string> environment;  ///< "NAME=value"; determines a run's share of the cores
  std::vector<std::string> nvme_dirs{};  ///< directories of the NVMe tier; none: it is not measured
  bool quick = false;                    ///< a fifth of the time, less exact
  bool optional_kernels = false;         ///< also kernels that a run must enable: FP8 GEMM, wgmma, cuDNN
  std::string backend = "host";          ///< the compute device: "host" or "cuda"
  std::function<void(std::string_view what)> report = [](std::string_view) {};
};

/// Measures this machine the way runs use it: GEMM by size, attention, memory-bound kernels, the link, RAM,
/// the optimizer, and the NVMe tier through its store. Takes about half a minute on an idle machine. Errors
/// name the measurement that failed. A failed measurement of an optional kernel is reported, and its rate
/// stays unknown.
Result<MachineProfile> measure_machine(const MeasureOptions& options);

}  // namespace strata
