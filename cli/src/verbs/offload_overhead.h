#pragma once

#include <strata/train/offload_overhead.h>
#include <strata/batches/training_data.h>

#include "args.h"

namespace strata::cli {

/// Trains Args::steps steps as configured and as many with everything on the device, alternating every few
/// steps. If both runs do not fit in this machine at once, it measures only the run as configured. Errors:
/// those of either run; `internal` if their losses differ in any bit.
Result<OffloadOverhead> measure_offload_overhead(const Args& args, const TrainingData& training_data);

}  // namespace strata::cli
