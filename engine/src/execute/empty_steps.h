#pragma once

#include <strata/engine/engine.h>

#include "execute/empty_batch_source.h"

namespace strata::detail {

/// A step of each trainee, without data, for dry runs and simulations. Adds to `report` as train_step() does;
/// its times are those of all of them.
inline Status run_empty_steps(Engine& engine, StepReport& report) {
  EmptyBatchSource batches;
  StallTimes times;
  double seconds = 0;
  for (const PlannedStep& step : engine.plan().steps) {
    const std::vector<BatchSource*> sources(step.parts.size(), &batches);
    STRATA_TRY(engine.train_step(step.trainee, sources, 1e-3, report));
    times += report.times;
    seconds += report.seconds;
  }
  report.times = times;
  report.seconds = seconds;
  return {};
}

}  // namespace strata::detail
