#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <strata/engine/engine.h>
#include <strata/infer/pair_figures.h>
#include <strata/plan/job.h>
#include <strata/train/run_folder.h>
#include <strata/train/stop_reason.h>

namespace strata {

/// What a run came to.
struct TrainOutcome {
  StopReason stop_reason = StopReason::finished;
  std::string why_stopped;  ///< if training stopped before its end: "by a signal"
  float train_loss = 0;
  std::optional<double> val_loss;  ///< nats per token, over all of data.val; nothing if not measured
  std::optional<double> bits_per_byte;
  PairFigures val_pairs;  ///< beside val_loss, of a run that compares pairs
  std::optional<Validation> last_validation, best_validation;  ///< the validations between steps
  double tokens_per_s = 0;                                     ///< measured over the steps only
  double train_seconds = 0;
  double init_s = 0;         ///< from the start of the run to its first step
  double digest_s = 0;       ///< what the digest of the states took
  std::string state_digest;  ///< empty if there is none: train.digest = false, or the run was stopped
  /// Made by strata's code in steps 3 to 12 of each plan of this process.
  std::uint64_t heap_allocations = 0;
  std::uint64_t resources_created = 0;  ///< buffers, streams, events and files created in the same steps
  StallTimes times{};                   ///< the stalls of the steps
  std::int64_t skipped_steps = 0;       ///< because a gradient was not finite
  /// The following cover the steps of the last plan, without its first three, in which pools and caches still
  /// fill.
  std::int64_t warm_steps = 0;
  std::int64_t warm_clipped = 0;
  double warm_seconds = 0;
  LaneBusySeconds warm_lanes{};
  /// The following cover this process, in all of its plans.
  MovedBytes moved{};
  LaneBusySeconds lanes{};
  std::uint64_t nvme_bytes_written = 0;
  std::uint64_t planned_in_ram = 0;  ///< maximum of all plans
  std::vector<RankMemory> memory{};  ///< one for each process
};

}  // namespace strata
