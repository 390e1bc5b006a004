#pragma once

#include <cstdint>

#include "loop/hooks/step_hook.h"
#include "loop/run_loop.h"

namespace strata::detail {

/// Texts that show what the model has learned, every log.sample_every steps.
class Samples final : public StepHook {
 public:
  explicit Samples(RunLoop& loop) : loop_(loop) {}
  /// Not after the last step, whose sample comes after its save.
  Status after_step(MetricsLine& line) override;
  /// Takes a sample after `step`, if samples are taken at all.
  Status take(std::int64_t step);

 private:
  RunLoop& loop_;
};

}  // namespace strata::detail
