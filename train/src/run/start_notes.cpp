#include <strata/train/start_notes.h>

#include <strata/runtime/str.h>

namespace strata {

std::vector<std::string> start_notes(const TrainConfig& config) {
  std::vector<std::string> notes;
  if (!config.model.ignored_settings.empty())
    notes.push_back(str("model    ", config.model.ignored_settings,
                        " for training, which strata does not support; the run trains without dropout"));
  if (const std::int64_t steps = config.train.steps; steps > 0 && config.optim.warmup > steps)
    notes.push_back(str("optim    optim.warmup = ", config.optim.warmup,
                        " is longer than the run of train.steps = ", steps,
                        ": the learning rate rises until the last step"));
  if (config.optim.lr == 0)
    notes.emplace_back("optim    optim.lr = 0: the steps are computed, and no parameter changes");
  return notes;
}

}  // namespace strata
