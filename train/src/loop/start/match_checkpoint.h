#pragma once

#include <string>
#include <vector>

#include <strata/runtime/log.h>
#include <strata/session/manifest.h>
#include <strata/train/observer.h>
#include <strata/train/run_request.h>
#include <strata/batches/training_data.h>

namespace strata {

struct LoadedConfig;
struct TrainConfig;

/// The checkpoints to resume from, newest first; none for a new run. The folders must be locked. Errors:
/// `invalid` for a new run where another one has checkpoints; those of list_checkpoints().
Result<std::vector<std::string>> checkpoints_to_resume(const RunRequest& request, const TrainConfig& config,
                                                       const std::string& path, Io& io, Observer& observer);

bool is_finished(const Manifest& manifest, const TrainConfig& config, const std::string& path, Io& io);

/// Checks that the checkpoint is of the same run, and warns of what will differ in bits nevertheless. The run
/// then uses the GEMM implementation and algorithms of the checkpoint. Errors: those of check_identity().
Status match_checkpoint(const std::string& checkpoint, const Manifest& manifest,
                        const TrainingData& training_data, const std::string& path, LoadedConfig& loaded,
                        Io& io, Log& log);

}  // namespace strata
