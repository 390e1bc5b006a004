#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include <strata/batches/pair_batches.h>
#include <strata/batches/training_data.h>
#include <strata/engine/engine.h>
#include <strata/runtime/io/io.h>
#include <strata/session/checkpoint.h>

// The scores that the reference of a run (train.objective=dpo) gives its pairs. Checkpoints of the run keep
// them.

namespace strata {

struct TrainConfig;

/// The pairs of one key, and where their scores are kept.
struct ReferencePart {
  PairBatches* pairs;  ///< null if there are none
  const char *name, *key;
  std::size_t n_scores() const { return 2 * pairs->data().n_pairs_of_cache(); }
};
/// The parts of data.train and data.val.
std::array<ReferencePart, 2> reference_parts(const TrainingData& data);

/// The scores that a checkpoint has; of one from before checkpoints had them, those in the folder of its run.
/// Errors: `corrupt`, also if they are missing; `invalid` for those of other data.
Result<std::vector<float>> kept_reference(Io& io, const ReferencePart& part, const TaskState& task,
                                          const std::string& run);

/// Sets the log-probabilities that the reference of a run gives `pairs`, whose data has the digest `digest`:
/// those of the checkpoint for such data, else those computed with the parameters with which the run started.
/// The engine then has these. Does nothing for other runs. Errors: those of the files; `unsupported` if it is
/// to be computed by ranks that share the model.
Status set_reference(Engine& engine, const TrainConfig& config, PairBatches& pairs, const std::string& digest,
                     const std::string& checkpoint, Io& io);

}  // namespace strata
