#pragma once

#include "args.h"
#include "training/practicality.h"
#include "training/workload.h"

namespace strata::cli {

/// Trains Args::steps steps as configured and as many with everything on the device, a few of each in turn;
/// where both do not fit this machine at once, those as configured alone. Errors: those of either run;
/// `internal` where their losses differ by a bit.
Result<Practicality> measure_practicality(const Args& args, const Workload& workload);

}  // namespace strata::cli
