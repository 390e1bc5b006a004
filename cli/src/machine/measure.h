#pragma once

#include <functional>
#include <string>
#include <vector>

#include <strata/offload/machine_profile.h>
#include <strata/runtime/status.h>

namespace strata::cli {

struct MeasureOptions {
  std::vector<std::string> environment;  ///< "NAME=value": of what share of the cores a run would have
  std::vector<std::string> nvme_dirs{};  ///< of the slow tier; none: not measured
  bool quick = false;                    ///< a fifth of the time, and less exact
  std::string backend = "host";          ///< what computes: host or cuda
  std::function<void(const char* part)> tell = [](const char*) {};
};

/// Measures this machine as runs use it: products by size, attention, what is no product, the link, RAM, the
/// optimizer, and the slow tier through its store. About half a minute on an idle machine. Errors: of what
/// is measured, naming it.
Result<MachineProfile> measure_machine(const MeasureOptions& options);

}  // namespace strata::cli
