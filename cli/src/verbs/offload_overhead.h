#pragma once

#include "args.h"
#include "training/offload_overhead.h"
#include "training/training_data.h"

namespace strata::cli {

/// Trains Args::steps steps as configured and as many with everything on the device, a few of each in turn;
/// where both do not fit this machine at once, those as configured alone. Errors: those of either run;
/// `internal` where their losses differ by a bit.
Result<OffloadOverhead> measure_offload_overhead(const Args& args, const TrainingData& training_data);

}  // namespace strata::cli
