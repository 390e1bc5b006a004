#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <strata/config/config_request.h>
#include <strata/config/run_checkpoints.h>
#include <strata/infer/evaluation.h>

namespace strata {

/// Which model is evaluated on which data. The first of `items` is a run or a Hugging Face folder; the others
/// are key=value.
struct EvaluateRequest : ConfigRequest {
  std::vector<std::string> data = {};           ///< files; empty: data.val
  std::int64_t batches = 0;                     ///< micro-batches; 0: all
  std::int64_t checkpoint = kNewestCheckpoint;  ///< if a run is evaluated
};

struct ModelEvaluation {
  std::string model;  ///< the checkpoint, or the folder
  EvaluationLoss loss;
  std::vector<std::string> files, notes;
  std::string packing, dtype;
  std::int64_t sequences = 0, seq = 0, dropped = 0;
  TierBytes budgets{}, planned{}, measured{};
};

/// Evaluates a model, by ranks that share it if the request asks for them. What learns from pairs is
/// evaluated on pairs. `warn` hears of what the user should know. Errors: `diverged` if the loss is not
/// finite; those of the configuration, the data and the plan.
Result<ModelEvaluation> evaluate_model(const EvaluateRequest& request, const CheckpointWarning& warn);

}  // namespace strata
