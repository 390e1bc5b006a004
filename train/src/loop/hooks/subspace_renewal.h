#pragma once

#include <strata/train/subspaces/schedule.h>

#include "loop/hooks/step_hook.h"
#include "loop/run_loop.h"

namespace strata::detail {

/// Renews the bases of a run that trains in subspaces, right before the step whose gradient chooses them:
/// only if that step fails is anything saved between the two.
class SubspaceRenewal final : public StepHook {
 public:
  explicit SubspaceRenewal(RunLoop& loop) : loop_(loop), schedule_(loop.config()) {}
  Status before_step(MetricsLine& line) override;

  SubspaceSchedule& schedule() noexcept { return schedule_; }

 private:
  RunLoop& loop_;
  SubspaceSchedule schedule_;
};

}  // namespace strata::detail
