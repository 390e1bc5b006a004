#include "loop/hooks/samples.h"

#include <optional>

#include <strata/config/train_config.h>
#include <strata/runtime/str.h>

namespace strata::detail {

Status Samples::after_step(MetricsLine& line) {
  const bool is_last = line.step == loop_.config().train.steps;
  if (is_last || !is_due_after(line.step, loop_.config().log.sample_every) || loop_.stops()) return {};
  return take(line.step);
}

Status Samples::take(std::int64_t step) {
  if (loop_.config().log.sample_every <= 0) return {};
  STRATA_TRY_ASSIGN(const std::optional<ModelSample> sample,
                    loop_.parts.task.sample(*loop_.engine, step, loop_.interrupts()));
  if (!sample || loop_.stops()) return {};  // an incomplete text is not stored
  STRATA_TRY(loop_.parts.folder.add_sample(step, sample->prompt, sample->text));
  loop_.parts.observer.on_message(str("sample at step ", step, ": ", sample->prompt, sample->text));
  return {};
}

}  // namespace strata::detail
