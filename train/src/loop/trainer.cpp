#include <strata/train/trainer.h>

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include <strata/runtime/memory/alloc_counter.h>
#include <strata/runtime/str.h>
#include <strata/train/lr_schedule.h>
#include <strata/infer/pair_figures.h>

#include "loop/gradient_norms.h"
#include "run/rank_memory.h"

namespace strata {
namespace {

// Contract C6 checks these steps, counted from the start of the plan. In earlier ones pools and caches still
// fill.
constexpr std::int64_t kFirstSteadyStep = 3, kLastSteadyStep = 12;

void add_figures_of_task(const MetricsLine& line, StepProgress& progress) noexcept {
  const auto add = [&](const auto& figures, std::initializer_list<std::string_view> shown) {
    for (const std::string_view name : shown)
      progress.of_task[progress.n_of_task++] = *std::find_if(
          figures.begin(), figures.end(), [&](const NamedFigure& figure) { return figure.name == name; });
  };
  if (line.pairs.n > 0) add(named_figures(line.pairs), {"accuracy", "margin"});
  if (line.policy.n > 0) add(named_figures(line.policy), {"reward", "kl", "entropy", "answer_tokens"});
}

}  // namespace

Trainer::Trainer(const TrainerParts& parts, Job& job)
    : config_(parts.config),
      engine_(&job.engine()),
      training_data_(parts.data),
      task_(parts.task),
      folder_(parts.folder),
      observer_(parts.observer),
      signals_(parts.signals),
      io_(parts.io),
      trace_(parts.trace),
      world_(parts.world),
      request_(parts.io, parts.folder.path()),
      val_batches_(parts.data.val_batches(parts.config.train.micro_batch)),
      subspaces_(parts.config),
      identity_(run_identity(parts.config, parts.data)),
      write_budget_(parts.config.io.write_budget_bytes, planned_writes(engine_->plan())) {
  if (config_.log.histograms && (world_ == nullptr || world_->rank() == 0))
    gradient_norms_ = std::make_unique<detail::GradientNorms>(engine_->state_plan().tensors);
}
Trainer::~Trainer() = default;

Status Trainer::check_budget_change(const RunPlan& plan) const {
  if (write_budget_.allows_replan(planned_writes(plan))) return {};
  return Status::error(Code::does_not_fit, str("io.write_budget does not allow writing all states again: ",
                                               write_budget_.to_string()));
}

void Trainer::continue_in(Job& job) {
  engine_ = &job.engine();
  moved_before_ = engine_->moved();
  write_budget_.begin_plan(planned_writes(engine_->plan()), outcome_.nvme_bytes_written,
                           engine_->nvme_endurance_bytes());
  steps_in_plan_ = 0;
  outcome_.warm_steps = 0;
  outcome_.warm_clipped = 0;
  outcome_.warm_seconds = 0;
  outcome_.warm_lanes = {};
}

Result<TrainOutcome> Trainer::run() {
  if (outcome_.stop_reason != StopReason::budget_change) {
    begin_ns_ = saved_ns_ = clock_.now_ns();
    moved_before_ = engine_->moved();
    write_budget_.begin(engine_->nvme_endurance_bytes());
    saved_step_ = first_step_ = engine_->steps();
    outcome_.train_loss = folder_.resumed_loss();
  }
  outcome_.stop_reason = StopReason::finished;
  Status status = train(outcome_);
  AllocCounter::set_armed(false);
  if (!status.is_ok()) return save_after_error(status);
  if (outcome_.stop_reason == StopReason::budget_change) return outcome_;
  STRATA_TRY(finish(outcome_));
  STRATA_TRY_ASSIGN(outcome_.memory,
                    gather_rank_memory(world_, outcome_.planned_in_ram, training_data_.data_bytes()));
  return outcome_;
}

bool Trainer::stop_requested() const {
  return world_ == nullptr ? signals_.stop_requested() : decides(kStop);
}
bool Trainer::time_is_up() const {
  if (world_ != nullptr) return decides(kTimeIsUp);
  return static_cast<double>(clock_.now_ns() - begin_ns_) * 1e-9 >= config_.train.max_time_s;
}

// One clock decides what depends on time, and the step that comes takes about as long as the last one.
std::uint32_t Trainer::decisions() const {
  std::uint32_t flags = 0;
  if (signals_.stop_requested()) flags |= kStop;
  if (!write_budget_.allows_step()) flags |= kWritesAreUsedUp;
  if (world_ == nullptr || world_->rank() != 0) return flags;
  const auto seconds_since = [&](std::int64_t then) {
    return static_cast<double>(clock_.now_ns() - then) * 1e-9 + last_step_s_;
  };
  if (seconds_since(begin_ns_) >= config_.train.max_time_s) flags |= kTimeIsUp;
  if (seconds_since(saved_ns_) + last_step_s_ > config_.checkpoint.interval_s) flags |= kSaveIsDue;
  return flags;
}

// Trains until a StopReason applies.
Status Trainer::train(TrainOutcome& outcome) {
  while (engine_->steps() < config_.train.steps) {
    if (stop_requested()) {
      outcome.stop_reason = StopReason::signal;
      outcome.why_stopped = "by a signal";
      return {};
    }
    if (world_ == nullptr && polls_requests_ && request_.is_pending()) {
      outcome.stop_reason = StopReason::budget_change;
      return {};
    }
    if (world_ == nullptr ? !write_budget_.allows_step() : decides(kWritesAreUsedUp)) {
      outcome.stop_reason = StopReason::write_budget;
      outcome.why_stopped = str("before io.write_budget was exceeded: ", write_budget_.to_string());
      return {};
    }
    const std::int64_t next = engine_->steps() + 1;
    if (Status status = prepare_step(); !status.is_ok()) {
      if (stop_requested()) continue;
      return status;
    }
    STRATA_TRY(step(next));
    STRATA_TRY(after_step(next));
    record_writes();
    if (time_is_up()) {
      outcome.stop_reason = next < config_.train.steps ? StopReason::time_limit : StopReason::finished;
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
                       engine_->steps() + 1);
  signals_.set_answer({text.data(), std::min(end.size, text.size())});
}

// Called before and after a step: counts the heap allocations and resources created in it.
void Trainer::count_resources(bool begins) {
  if (steps_in_plan_ < kFirstSteadyStep || steps_in_plan_ > kLastSteadyStep) return;
  AllocCounter::set_armed(begins);
  if (begins) {
    allocations_before_ = AllocCounter::count();
    resources_before_ = engine_->resources_created();
  } else {
    outcome_.heap_allocations += AllocCounter::count() - allocations_before_;
    outcome_.resources_created += engine_->resources_created() - resources_before_;
  }
}

Status Trainer::step(std::int64_t step) {
  ++steps_in_plan_;
  update_signal_answer();
  if (trace_ != nullptr) trace_->set_enabled(config_.log.trace.contains(step));
  MetricsLine& line = line_ = {};
  line.step = step;
  STRATA_TRY(renew_subspaces(line));
  count_resources(true);
  line.lr = cpuopt::learning_rate(lr_schedule(config_.optim, config_.train.steps), step);
  const LaneBusySeconds lanes_before = engine_->lane_busy_seconds();
  line.report.flags = decisions();
  STRATA_TRY(task_.step(*engine_, line.lr, line.report));
  agreed_ = line.report.flags;
  STRATA_TRY(task_.after_step(*engine_, line, observer_));
  const double tokens = task_.tokens_of_step();
  tokens_ += tokens;
  line.tokens_per_s = tokens / line.report.seconds;
  line.used = engine_->used_bytes();
  const MovedBytes moved = engine_->moved();
  line.moved = moved - moved_before_;
  moved_before_ = moved;
  step_seconds_ += line.report.seconds + line.renew_bases_s;
  if (steps_in_plan_ > kFirstSteadyStep) record_warm_step(line.report, lanes_before);
  outcome_.train_loss = line.report.loss;
  STRATA_TRY(record_skipped_step(step, line.report));
  outcome_.times += line.report.times;
  last_step_s_ = line.report.seconds;
  outcome_.tokens_per_s = tokens_ / step_seconds_;
  STRATA_TRY(folder_.add_metrics(line));
  StepProgress progress = {step,
                           config_.train.steps,
                           line.report.loss,
                           outcome_.tokens_per_s,
                           line.used[0],
                           line.used[1],
                           line.used[2],
                           static_cast<double>(clock_.now_ns() - begin_ns_) * 1e-9,
                           config_.train.max_time_s,
                           first_step_};
  add_figures_of_task(line, progress);
  observer_.on_step(progress);
  count_resources(false);
  return Status::ok();
}

// Prepares the next step; the time counts as the step's own.
Status Trainer::prepare_step() {
  if (!task_.is_due(engine_->steps())) return {};
  if (trace_ != nullptr) trace_->set_enabled(config_.log.trace.contains(engine_->steps() + 1));
  const std::int64_t begin = clock_.now_ns();
  STRATA_TRY(task_.prepare(*engine_, engine_->steps(), [this] { return stop_requested(); }));
  step_seconds_ += static_cast<double>(clock_.now_ns() - begin) * 1e-9;
  return {};
}

void Trainer::resume_from(const Manifest& manifest) { subspaces_.resume(manifest.step, manifest.run); }

// Right before the step whose gradient they are of: only if it fails is anything saved between the two.
Status Trainer::renew_subspaces(MetricsLine& line) {
  if (!subspaces_.is_due(engine_->steps())) return {};
  const std::int64_t begin = clock_.now_ns();
  STRATA_TRY_ASSIGN(const auto renewal, subspaces_.before_step(*engine_, *task_.batches()));
  line.renew_bases_s = static_cast<double>(clock_.now_ns() - begin) * 1e-9;
  line.basis_energy = renewal.energy;
  if (!renewal.note.empty()) observer_.on_message(str("step ", line.step, ": ", renewal.note));
  return {};
}

void Trainer::record_warm_step(const StepReport& report, const LaneBusySeconds& before) {
  ++outcome_.warm_steps;
  outcome_.warm_clipped += report.clip_factor < 1 ? 1 : 0;
  outcome_.warm_seconds += report.seconds;
  outcome_.warm_lanes += engine_->lane_busy_seconds() - before;
}

// Single bad batches are skipped; after 100 skipped steps in a row training stops.
Status Trainer::record_skipped_step(std::int64_t step, const StepReport& report) {
  constexpr std::int64_t kMaxConsecutiveSkips = 100;
  skipped_in_a_row_ = report.skipped ? skipped_in_a_row_ + 1 : 0;
  if (!report.skipped) return Status::ok();
  ++outcome_.skipped_steps;
  observer_.on_message(str("step ", step, " skipped: ", report.skip_reason));
  if (skipped_in_a_row_ < kMaxConsecutiveSkips) return Status::ok();
  return Status::error(
      Code::diverged,
      str(skipped_in_a_row_, " consecutive steps were skipped; in the last one ", report.skip_reason));
}

// The work between steps, which count_resources() does not cover.
Status Trainer::after_step(std::int64_t step) {
  const auto due = [&](std::int64_t every) { return every > 0 && step % every == 0; };
  if (gradient_norms_ != nullptr) {
    STRATA_TRY(gradient_norms_->read(*engine_));
    line_.tensor_norms = gradient_norms_->of_tensors();
    line_.layer_norms = gradient_norms_->of_layers();
  }
  STRATA_TRY(folder_.after_step(line_));
  if (due(config_.train.eval_every) && !stop_requested()) STRATA_TRY(validate(step));
  const bool is_last = step == config_.train.steps;  // whose sample finish() takes
  if (due(config_.log.sample_every) && !is_last && !stop_requested()) STRATA_TRY(sample(step));
  return !stop_requested() && is_save_due(step) ? save_periodic_checkpoint() : Status::ok();
}

void Trainer::record_writes() {
  write_budget_.after_step(engine_->nvme_endurance_bytes());
  if (write_budget_.is_limited() && write_budget_.steps() == WriteBudget::kMeasured)
    observer_.on_message(fmt::format("{}: enough for about {:.0f} more steps", write_budget_.to_string(),
                                     write_budget_.steps_left()));
}

// Adds the counters of the engine to the outcome. Call it before the engine is destroyed.
void Trainer::add_totals() {
  outcome_.moved += engine_->moved();
  outcome_.lanes += engine_->lane_busy_seconds();
  nvme_bytes_before_ = outcome_.nvme_bytes_written;
  outcome_.nvme_bytes_written += engine_->nvme_endurance_bytes();
  outcome_.planned_in_ram = std::max(outcome_.planned_in_ram, bytes_in_ram(config_, engine_->plan()));
}

Status Trainer::finish(TrainOutcome& outcome) {
  outcome.train_seconds = step_seconds_;
  outcome.last_validation = folder_.last_validation();
  outcome.best_validation = folder_.best_validation();
  const bool saves = config_.checkpoint.at_end || outcome.stop_reason != StopReason::finished;
  signals_.set_answer("\nstrata train: saving, then ending; press again to stop without saving");
  if (saves && saved_step_ != engine_->steps()) STRATA_TRY(save());
  add_totals();  // here, so that they are those of training, without the final validation
  if (outcome.stop_reason == StopReason::signal || outcome.stop_reason == StopReason::write_budget)
    return Status::ok();  // no final validation: the user does not want to wait, and it may write to NVMe too
  signals_.set_answer(
      str("\nstrata train: stopping the validation; ",
          saves ? "all steps are saved" : "nothing is saved because checkpoint.at_end is false",
          "; press again to stop immediately"));
  STRATA_TRY(validate_final(outcome));
  outcome.nvme_bytes_written = nvme_bytes_before_ + engine_->nvme_endurance_bytes();
  if (!signals_.stop_requested()) return {};
  outcome.stop_reason = StopReason::signal;
  outcome.why_stopped = "by a signal after the last step, before its validation";
  return {};
}

}  // namespace strata
