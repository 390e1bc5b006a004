#include "loop/hooks/validations.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <strata/config/train_config.h>
#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>

namespace strata::detail {

Validations::Validations(RunLoop& loop)
    : loop_(loop), batches_(loop.parts.data.val_batches(loop.config().train.micro_batch)) {}

Status Validations::after_step(MetricsLine& line) {
  const TrainConfig::Train& train = loop_.config().train;
  if (batches_ == nullptr || !is_due_after(line.step, train.eval_every) || loop_.stops()) return {};
  const std::int64_t n = std::min<std::int64_t>(train.eval_batches, batches_->n_batches());
  STRATA_TRY_ASSIGN(const auto loss, evaluate(n, str("step ", line.step, ": validating")));
  if (!loss) return {};
  const std::string accuracy =
      loss->pairs.n > 0 ? fmt::format(", accuracy {:.3f}", loss->pairs.accuracy) : std::string();
  loop_.parts.observer.on_message(fmt::format("step {}: validation loss {:.4f}{} over {}", line.step,
                                              loss->nats, accuracy, plural(n, "micro-batch")));
  if (n == batches_->n_batches() && line.step == train.steps) whole_ = *loss;
  return loop_.parts.folder.add_validation({line.step, loss->nats, loss->pairs}, n);
}

Result<std::optional<EvaluationLoss>> Validations::of_last_step() {
  if (batches_ == nullptr || loop_.stops()) return std::optional<EvaluationLoss>();
  if (whole_) return whole_;
  STRATA_TRY_ASSIGN(const auto loss, evaluate(batches_->n_batches(), "validating the last step"));
  if (loss) loop_.parts.folder.tell_last_validation({loop_.engine->steps(), loss->nats, loss->pairs});
  return loss;
}

// Gives nothing if a signal cuts it short. Several ranks all evaluate to the end.
Result<std::optional<EvaluationLoss>> Validations::evaluate(std::int64_t n, std::string what) {
  const EvaluationObserver watch{
      loop_.interrupts(), &loop_.clock, [this, what = std::move(what)](std::int64_t done, std::int64_t all) {
        loop_.parts.observer.on_message(str(what, ", ", done, " of ", plural(all, "micro-batch")));
      }};
  const auto loss = evaluate_loss(*loop_.engine, *batches_, n, watch);
  if (loss.has_value()) return std::optional(*loss);
  if (loop_.stops()) return std::optional<EvaluationLoss>();
  return loss.status();
}

}  // namespace strata::detail
