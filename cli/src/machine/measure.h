#pragma once

#include <functional>
#include <string>

#include <strata/offload/machine_profile.h>
#include <strata/runtime/core_share.h>
#include <strata/runtime/status.h>

namespace strata::cli {

struct MeasureOptions {
  CoreShare share;                       ///< the cores that a run would use
  std::vector<std::string> nvme_dirs{};  ///< of the slow tier; none: not measured
  bool quick = false;                    ///< a fifth of the time, and less exact
  std::string backend = "host";          ///< what computes: host or cuda
  std::function<void(const char* part)> tell = [](const char*) {};
};

/// Measures this machine as runs use it: products by size, attention, what is no product, the link, RAM, the
/// optimizer, and the slow tier through its store. About twenty seconds on an idle machine. Errors: of what
/// is measured, naming it.
Result<MachineProfile> measure_machine(const MeasureOptions& options);

}  // namespace strata::cli
