#pragma once

#include <memory>
#include <optional>
#include <string>

#include <strata/profile/profile_cache.h>
#include <strata/runtime/io/io.h>
#include <strata/session/manifest.h>
#include <strata/plan/job.h>
#include <strata/train/observer.h>
#include <strata/train/run_folder.h>
#include <strata/train/run_request.h>
#include <strata/batches/training_data.h>

#include "loop/trainer.h"

namespace strata {

/// What a run holds while it goes on. Its plan may change when budgets change.
struct ActiveRun {
  const RunRequest& request;
  LoadedConfig& loaded;
  const CachedProfile& machine;
  Io& io;
  Trace* trace;
  World* world;  ///< null if there is one rank
  PlannedJob planned;
  std::unique_ptr<Job> job;
  std::optional<Manifest> resumed{};  ///< the manifest of the checkpoint that the run was loaded from
  double init_s = 0;                  ///< from the start of the run to its first step

  PlanBasis basis() const { return {machine.profile ? &*machine.profile : nullptr, false}; }
};

/// Describes the NVMe tier of an engine for the start table.
std::string nvme_text(const Engine& engine);

/// Resolves the `auto` keys that depend on the training data: data.packing and data.tokenizer.
void resolve_data_autos(LoadedConfig& loaded, const std::string& path, const TrainingData& training_data);

/// Consumes the pending BudgetRequest of the run and restarts the job with a plan for the requested budgets.
/// A request that cannot be satisfied is refused with a message, and training continues as before. Errors:
/// only if neither the new nor the old plan can continue.
Status change_budgets(ActiveRun& active, Trainer& trainer, const TrainingData& training_data,
                      RunFolder& folder, Observer& observer);

}  // namespace strata
