// Reports of a run about the model beside its steps: validation losses and samples.
#include <algorithm>

#include <fmt/format.h>

#include <strata/config/train_config.h>
#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>
#include <strata/infer/evaluation.h>
#include <strata/train/trainer.h>

namespace strata {

Status Trainer::validate(std::int64_t step) {
  if (val_batches_ == nullptr) return Status::ok();
  const std::int64_t n = std::min<std::int64_t>(config_.train.eval_batches, val_batches_->n_batches());
  const auto loss =
      evaluate_loss(*engine_, *val_batches_, n, evaluation_observer(str("step ", step, ": validating")));
  if (!loss.has_value()) return stop_requested() ? Status::ok() : loss.status();
  const std::string accuracy =
      loss->pairs.n > 0 ? fmt::format(", accuracy {:.3f}", loss->pairs.accuracy) : std::string();
  observer_.on_message(fmt::format("step {}: validation loss {:.4f}{} over {}", step, loss->nats, accuracy,
                                   plural(n, "micro-batch")));
  if (n == val_batches_->n_batches() && step == config_.train.steps) final_loss_ = *loss;
  return folder_.add_validation({step, loss->nats, loss->pairs}, n);
}

EvaluationObserver Trainer::evaluation_observer(std::string what) {
  // All ranks evaluate to the end, since each needs the others.
  return {world_ == nullptr ? &signals_ : nullptr, &clock_,
          [this, what = std::move(what)](std::int64_t done, std::int64_t n) {
            observer_.on_message(str(what, ", ", done, " of ", plural(n, "micro-batch")));
          }};
}

Status Trainer::sample(std::int64_t step) {
  STRATA_TRY_ASSIGN(const std::optional<ModelSample> sample,
                    task_.sample(*engine_, step, world_ == nullptr ? &signals_ : nullptr));
  if (!sample || stop_requested()) return {};  // an incomplete text is not stored
  STRATA_TRY(folder_.add_sample(step, sample->prompt, sample->text));
  observer_.on_message(str("sample at step ", step, ": ", sample->prompt, sample->text));
  return {};
}

Status Trainer::validate_final(TrainOutcome& outcome) {
  if (trace_ != nullptr) trace_->set_enabled(false);  // its many passes would displace the steps
  if (config_.log.sample_every > 0) STRATA_TRY(sample(engine_->steps()));
  if (MicroBatches* const val = val_batches_.get(); val != nullptr && !stop_requested()) {
    const auto loss = final_loss_ ? Result<EvaluationLoss>(*final_loss_)
                                  : evaluate_loss(*engine_, *val, val->n_batches(),
                                                  evaluation_observer("validating the last step"));
    if (!loss.has_value()) return stop_requested() ? Status::ok() : loss.status();
    outcome.val_loss = loss->nats;
    outcome.bits_per_byte = loss->bits_per_byte();
    outcome.val_pairs = loss->pairs;
    if (!final_loss_) folder_.tell_last_validation({engine_->steps(), loss->nats, loss->pairs});
  }
  if (stop_requested()) return {};
  STRATA_TRY_ASSIGN(outcome.state_digest, engine_->state_digest());
  return Status::ok();
}

}  // namespace strata
