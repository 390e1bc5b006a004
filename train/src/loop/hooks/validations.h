#pragma once

#include <memory>
#include <optional>
#include <string>

#include <strata/infer/evaluation.h>

#include "loop/hooks/step_hook.h"
#include "loop/run_loop.h"

namespace strata::detail {

/// Losses over data.val: of train.eval_batches every train.eval_every steps, and of all after the last step.
class Validations final : public StepHook {
 public:
  explicit Validations(RunLoop& loop);
  Status after_step(MetricsLine& line) override;
  /// Over all validation data, after the last step; nothing if there are none or a signal cuts it short.
  Result<std::optional<EvaluationLoss>> of_last_step();

 private:
  Result<std::optional<EvaluationLoss>> evaluate(std::int64_t n, std::string what);

  RunLoop& loop_;
  const std::unique_ptr<MicroBatches> batches_;  // null if there are none
  std::optional<EvaluationLoss> whole_;          // the last step's, if its validation had all data
};

}  // namespace strata::detail
