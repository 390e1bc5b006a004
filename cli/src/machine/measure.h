#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <strata/offload/machine_profile.h>
#include <strata/runtime/status.h>

namespace strata::cli {

struct MeasureOptions {
  std::vector<std::string> environment;  ///< "NAME=value": of what share of the cores a run would have
  std::vector<std::string> nvme_dirs{};  ///< of the slow tier; none: not measured
  bool quick = false;                    ///< a fifth of the time, and less exact
  bool optional_kernels = false;         ///< also what a run has to ask for: eight bits, wgmma, cuDNN
  std::string backend = "host";          ///< what computes: host or cuda
  std::function<void(std::string_view what)> report = [](std::string_view) {};
};

/// Measures this machine as runs use it: products by size, attention, what is no product, the link, RAM, the
/// optimizer, and the slow tier through its store. About half a minute on an idle machine. Errors: of what
/// is measured, naming it; of a choice that does not work here it is told, and its figure stays unknown.
Result<MachineProfile> measure_machine(const MeasureOptions& options);

}  // namespace strata::cli
