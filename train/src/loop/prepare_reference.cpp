#include "loop/prepare_reference.h"

#include <utility>
#include <vector>

#include <strata/runtime/clock.h>
#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>
#include <strata/train/align/objective.h>
#include <strata/train/align/pair_batches.h>

namespace strata::detail {

Status prepare_reference(Job& job, const TrainConfig& config, const TrainingData& training_data,
                         const std::string& path, bool writes, Io& io, Observer& observer) {
  if (!has_reference(config)) return {};
  struct Part {
    PairBatches* pairs;
    const char *file, *what;
  };
  for (const Part& part : {Part{training_data.train_pairs(), "/reference.bin", "data.train"},
                           Part{training_data.val_pairs(), "/reference-val.bin", "data.val"}}) {
    if (part.pairs == nullptr) continue;
    if (job.engine().steps() > 0) {
      STRATA_TRY_ASSIGN(std::vector<float> scores,
                        read_reference(io, path + part.file, 2 * part.pairs->data().n_pairs_of_cache()));
      part.pairs->set_reference(std::move(scores));
      continue;
    }
    const SteadyClock clock;
    std::int64_t said_ns = clock.now_ns();
    STRATA_TRY(compute_reference(job.engine(), *part.pairs, [&](std::int64_t done, std::int64_t n) {
      constexpr std::int64_t kBetweenNs = 5'000'000'000;
      if (clock.now_ns() - said_ns < kBetweenNs) return;
      said_ns = clock.now_ns();
      observer.on_message(
          str(part.what, ": the reference's log-probabilities, ", done, " of ", plural(n, "micro-batch")));
    }));
    if (writes) STRATA_TRY(write_reference(io, path + part.file, *part.pairs->reference()));
  }
  return {};
}

}  // namespace strata::detail
