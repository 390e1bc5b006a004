#pragma once

#include <string>

#include <strata/train/job.h>
#include <strata/train/observer.h>
#include <strata/train/training_data.h>

namespace strata::detail {

/// Of a run with a reference: sets what it gives the pairs. At step 0 that is computed with the parameters
/// with which the run starts, and written into the run folder at `path` by the rank that `writes`; later it
/// is read from there. Does nothing for other runs. Errors: those of compute_reference() and
/// read_reference().
Status prepare_reference(Job& job, const TrainConfig& config, const TrainingData& training_data,
                         const std::string& path, bool writes, Io& io, Observer& observer);

}  // namespace strata::detail
