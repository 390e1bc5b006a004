#include "loop/trainer.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

#include <fmt/format.h>

#include <strata/config/train_config.h>
#include <strata/infer/pair_figures.h>
#include <strata/runtime/memory/alloc_counter.h>
#include <strata/runtime/str.h>
#include <strata/train/lr_schedule.h>

#include "loop/hooks/gradient_norms.h"
#include "run/rank_memory.h"

namespace strata {
namespace {

// Records what follows in the trace if log.trace has the step.
void trace_step(const detail::RunLoop& loop, std::int64_t step) {
  if (loop.parts.trace != nullptr) loop.parts.trace->set_enabled(loop.config().log.trace.contains(step));
}

void add_figures_of_task(const MetricsLine& line, StepProgress& progress) noexcept {
  const auto add = [&](const auto& figures, std::initializer_list<std::string_view> shown) {
    for (const std::string_view name : shown)
      progress.of_task[progress.n_of_task++] = *std::find_if(
          figures.begin(), figures.end(), [&](const NamedFigure& figure) { return figure.name == name; });
  };
  if (line.pairs.n > 0) add(named_figures(line.pairs), {"accuracy", "margin"});
  if (line.policy.n > 0) add(named_figures(line.policy), {"reward", "kl", "entropy", "answer_tokens"});
}

std::unique_ptr<detail::StepHook> gradient_norms(detail::RunLoop& loop) {
  if (!loop.config().log.histograms || !loop.is_first_rank()) return nullptr;
  return std::make_unique<detail::GradientNorms>(loop);
}

}  // namespace

Trainer::Trainer(const TrainerParts& parts, Job& job)
    : loop_{parts, &job.engine()},
      request_(parts.io, parts.folder.path()),
      write_budget_(parts.config.io.write_budget_bytes, planned_writes(job.engine().plan())),
      subspaces_(loop_),
      validations_(loop_),
      samples_(loop_),
      saves_(loop_, subspaces_),
      gradient_norms_(gradient_norms(loop_)),
      hooks_{&subspaces_, &validations_, &samples_, &saves_},
      meter_(loop_, outcome_) {}

Status Trainer::check_budget_change(const RunPlan& plan) const {
  if (write_budget_.allows_replan(planned_writes(plan))) return {};
  return Status::error(Code::does_not_fit, str("io.write_budget does not allow writing all states again: ",
                                               write_budget_.to_string()));
}

void Trainer::continue_in(Job& job) {
  loop_.engine = &job.engine();
  write_budget_.begin_plan(planned_writes(loop_.engine->plan()), outcome_.nvme_bytes_written,
                           loop_.engine->nvme_endurance_bytes());
  meter_.begin_plan();
}

void Trainer::resume_from(const Manifest& manifest) {
  subspaces_.schedule().resume(manifest.step, manifest.run);
}

Result<std::string> Trainer::save_for_restart() {
  STRATA_TRY_ASSIGN(const std::string where, saves_.checkpoint());
  meter_.add_engine();
  return where;
}

Result<TrainOutcome> Trainer::run() {
  if (outcome_.stop_reason != StopReason::budget_change) {
    loop_.begin_ns = loop_.clock.now_ns();
    saves_.begin();
    meter_.begin_run();
    write_budget_.begin(loop_.engine->nvme_endurance_bytes());
    first_step_ = loop_.engine->steps();
    outcome_.train_loss = loop_.parts.folder.resumed_loss();
  }
  outcome_.stop_reason = StopReason::finished;
  const Status status = train();
  AllocCounter::set_armed(false);
  if (!status.is_ok()) return saves_.after_error(status);
  if (outcome_.stop_reason == StopReason::budget_change) return outcome_;
  STRATA_TRY(finish());
  STRATA_TRY_ASSIGN(outcome_.memory, gather_rank_memory(loop_.parts.world, outcome_.planned_in_ram,
                                                        loop_.parts.data.data_bytes()));
  return outcome_;
}

bool Trainer::time_is_up() const {
  if (loop_.parts.world != nullptr) return loop_.decides(detail::kTimeIsUp);
  return loop_.seconds_since(loop_.begin_ns) >= loop_.config().train.max_time_s;
}

bool Trainer::writes_are_used_up() const {
  return loop_.parts.world != nullptr ? loop_.decides(detail::kWritesAreUsedUp)
                                      : !write_budget_.allows_step();
}

// One clock decides what depends on time, and the step that comes takes about as long as the last one.
std::uint32_t Trainer::decisions() const {
  std::uint32_t flags = 0;
  if (loop_.parts.signals.stop_requested()) flags |= detail::kStop;
  if (!write_budget_.allows_step()) flags |= detail::kWritesAreUsedUp;
  if (loop_.parts.world == nullptr || !loop_.is_first_rank()) return flags;
  if (loop_.seconds_since(loop_.begin_ns) + loop_.last_step_s >= loop_.config().train.max_time_s)
    flags |= detail::kTimeIsUp;
  if (saves_.interval_ends(2)) flags |= detail::kSaveIsDue;
  return flags;
}

void Trainer::stop(StopReason reason, std::string why) {
  outcome_.stop_reason = reason;
  outcome_.why_stopped = std::move(why);
}

// Trains until a StopReason applies.
Status Trainer::train() {
  while (loop_.engine->steps() < loop_.config().train.steps) {
    if (loop_.stops()) {
      stop(StopReason::signal, "by a signal");
      return {};
    }
    if (loop_.parts.world == nullptr && polls_requests_ && request_.is_pending()) {
      outcome_.stop_reason = StopReason::budget_change;
      return {};
    }
    if (writes_are_used_up()) {
      stop(StopReason::write_budget, str("before io.write_budget was exceeded: ", write_budget_.to_string()));
      return {};
    }
    const std::int64_t next = loop_.engine->steps() + 1;
    if (Status status = prepare_step(); !status.is_ok()) {
      if (loop_.stops()) continue;
      return status;
    }
    STRATA_TRY(step(next));
    STRATA_TRY(after_step());
    record_writes();
    if (time_is_up()) {
      outcome_.stop_reason =
          next < loop_.config().train.steps ? StopReason::time_limit : StopReason::finished;
      return {};
    }
  }
  return {};
}

void Trainer::update_signal_answer() {
  std::array<char, 200> text;
  const auto end =
      fmt::format_to_n(text.data(), text.size(),
                       "\nstrata train: finishing step {}, then saving; press again to stop without saving",
                       loop_.engine->steps() + 1);
  loop_.parts.signals.set_answer({text.data(), std::min(end.size, text.size())});
}

// Prepares the next step; the time counts as the step's own.
Status Trainer::prepare_step() {
  RunTask& task = loop_.parts.task;
  const std::int64_t steps = loop_.engine->steps();
  if (!task.is_due(steps)) return {};
  trace_step(loop_, steps + 1);
  const std::int64_t begin = loop_.clock.now_ns();
  STRATA_TRY(task.prepare(*loop_.engine, steps, [this] { return loop_.stops(); }));
  if (loop_.parts.config.log.rollouts) {
    STRATA_TRY_ASSIGN(const std::string lines, task.prepared(steps));
    STRATA_TRY(loop_.parts.folder.add_rollouts(lines));
  }
  meter_.add_seconds(loop_.seconds_since(begin));
  return {};
}

Status Trainer::step(std::int64_t step) {
  RunTask& task = loop_.parts.task;
  Engine& engine = *loop_.engine;
  meter_.begin_step();
  update_signal_answer();
  trace_step(loop_, step);
  line_ = {};
  line_.step = step;
  for (detail::StepHook* const hook : hooks_) STRATA_TRY(hook->before_step(line_));
  meter_.count_resources(true);
  line_.lr = cpuopt::learning_rate(lr_schedule(loop_.config(), loop_.config().optim.lr), step);
  const LaneBusySeconds lanes_before = engine.lane_busy_seconds();
  line_.report.flags = decisions();
  STRATA_TRY(task.step(engine, line_.lr, line_.report));
  loop_.agreed = line_.report.flags;
  STRATA_TRY(task.after_step(engine, line_, loop_.parts.observer));
  meter_.end_step(task.tokens_of_step(), lanes_before, line_);
  STRATA_TRY(record_skipped_step(line_.report));
  loop_.last_step_s = line_.report.seconds;
  STRATA_TRY(loop_.parts.folder.add_metrics(line_));
  report_step();
  meter_.count_resources(false);
  return {};
}

void Trainer::report_step() {
  StepProgress progress = {line_.step,
                           loop_.config().train.steps,
                           line_.report.loss,
                           outcome_.tokens_per_s,
                           line_.used[0],
                           line_.used[1],
                           line_.used[2],
                           loop_.seconds_since(loop_.begin_ns),
                           loop_.config().train.max_time_s,
                           first_step_};
  add_figures_of_task(line_, progress);
  loop_.parts.observer.on_step(progress);
}

// Single bad batches are skipped; after 100 skipped steps in a row training stops.
Status Trainer::record_skipped_step(const StepReport& report) {
  constexpr std::int64_t kMaxConsecutiveSkips = 100;
  skipped_in_a_row_ = report.skipped ? skipped_in_a_row_ + 1 : 0;
  if (!report.skipped) return Status::ok();
  ++outcome_.skipped_steps;
  loop_.parts.observer.on_message(str("step ", line_.step, " skipped: ", report.skip_reason));
  if (skipped_in_a_row_ < kMaxConsecutiveSkips) return Status::ok();
  return Status::error(
      Code::diverged,
      str(skipped_in_a_row_, " consecutive steps were skipped; in the last one ", report.skip_reason));
}

// The work between steps, which the meter's counts of resources do not cover.
Status Trainer::after_step() {
  if (gradient_norms_ != nullptr) STRATA_TRY(gradient_norms_->after_step(line_));
  STRATA_TRY(loop_.parts.folder.after_step(line_));
  for (detail::StepHook* const hook : hooks_) STRATA_TRY(hook->after_step(line_));
  return {};
}

void Trainer::record_writes() {
  write_budget_.after_step(loop_.engine->nvme_endurance_bytes());
  if (write_budget_.is_limited() && write_budget_.steps() == WriteBudget::kMeasured)
    loop_.parts.observer.on_message(fmt::format("{}: enough for about {:.0f} more steps",
                                                write_budget_.to_string(), write_budget_.steps_left()));
}

Status Trainer::finish() {
  Signals& signals = loop_.parts.signals;
  const StopReason reason = outcome_.stop_reason;
  outcome_.train_seconds = meter_.step_seconds();
  outcome_.last_validation = loop_.parts.folder.last_validation();
  outcome_.best_validation = loop_.parts.folder.best_validation();
  const bool saves = loop_.config().checkpoint.at_end || reason != StopReason::finished;
  signals.set_answer("\nstrata train: saving, then ending; press again to stop without saving");
  if (saves) STRATA_TRY(saves_.save_changes());
  meter_.add_engine();  // here, so that its counters are those of training, without the final validation
  if (reason == StopReason::signal || reason == StopReason::write_budget)
    return Status::ok();  // no final validation: the user does not want to wait, and it may write to NVMe too
  signals.set_answer(
      str("\nstrata train: stopping the validation; ",
          saves ? "all steps are saved" : "nothing is saved because checkpoint.at_end is false",
          "; press again to stop immediately"));
  STRATA_TRY(measure_last_step());
  meter_.add_last_writes();
  if (signals.stop_requested())
    stop(StopReason::signal, "by a signal after the last step, before its validation");
  return {};
}

// What a run tells of its last step: a sample, the loss over all validation data, and the digest of its
// states.
Status Trainer::measure_last_step() {
  if (loop_.parts.trace != nullptr)
    loop_.parts.trace->set_enabled(false);  // its many passes would displace the steps
  STRATA_TRY(samples_.take(loop_.engine->steps()));
  STRATA_TRY_ASSIGN(const std::optional<EvaluationLoss> loss, validations_.of_last_step());
  if (loss) {
    outcome_.val_loss = loss->nats;
    outcome_.bits_per_byte = loss->bits_per_byte();
    outcome_.val_pairs = loss->pairs;
  }
  if (loop_.stops()) return {};
  if (!loop_.parts.config.train.digest) return {};
  const SteadyClock clock;
  const std::int64_t start = clock.now_ns();
  STRATA_TRY_ASSIGN(outcome_.state_digest, loop_.engine->state_digest());
  outcome_.digest_s = 1e-9 * static_cast<double>(clock.now_ns() - start);
  return {};
}

}  // namespace strata
