#pragma once

#include <strata/offload/machine_profile.h>
#include <strata/profile/measure_options.h>
#include <strata/runtime/status.h>

namespace strata {

/// Measures this machine the way runs use it: GEMM by size, attention, memory-bound kernels, the link, RAM,
/// the optimizer, and the NVMe tier through its store. Takes about half a minute on an idle machine. Errors
/// name the measurement that failed. A failed measurement of an optional kernel is reported, and its rate
/// stays unknown.
Result<MachineProfile> measure_machine(const MeasureOptions& options);

}  // namespace strata
