#include "training/trainer.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <strata/cpuopt/schedule.h>
#include <strata/engine/checkpoint.h>
#include <strata/runtime/alloc_counter.h>
#include <strata/model/hf/config.h>
#include <strata/runtime/digest.h>
#include <strata/runtime/str.h>

#include "machine/compute_device.h"
#include "training/held_out.h"
#include "training/plan_text.h"
#include "training/resume.h"
#include "training/sampler.h"

namespace strata::cli {
namespace {

// Contract C6 looks at these steps, counted from the start of the plan: before, pools and caches still fill.
constexpr std::int64_t kFirstCounted = 3, kLastCounted = 12;

cpuopt::LrSchedule schedule_of(const TrainConfig& c) {
  const auto kind = c.optim.schedule == "cosine"   ? cpuopt::ScheduleKind::cosine
                    : c.optim.schedule == "linear" ? cpuopt::ScheduleKind::linear
                    : c.optim.schedule == "wsd"    ? cpuopt::ScheduleKind::wsd
                                                   : cpuopt::ScheduleKind::constant;
  const std::int64_t total = std::max<std::int64_t>(c.train.steps, 1),
                     warmup = std::min(c.optim.warmup, total);
  const auto decay =
      static_cast<std::int64_t>(std::llround(c.optim.decay_ratio * static_cast<double>(total)));
  return {kind,   c.optim.lr, c.optim.lr * c.optim.min_lr_ratio,
          warmup, total,      std::min(decay, total - warmup)};
}

}  // namespace

Trainer::Trainer(const TrainConfig& config, Job& job, const Workload& workload, RunFolder& folder,
                 Progress& progress, const Signals& signals, Io& io, Trace* trace)
    : config_(config),
      engine_(&job.engine()),
      workload_(workload),
      folder_(folder),
      progress_(progress),
      signals_(signals),
      io_(io),
      trace_(trace),
      request_(io, folder.path()),
      batches_(workload.train(), config.train.micro_batch),
      write_budget_(config.io.write_budget_bytes, planned_writes(engine_->plan())) {}

Status Trainer::may_go_on_in(const RunPlan& plan) const {
  if (write_budget_.allows_a_move_to(planned_writes(plan))) return {};
  return Status::error(Code::does_not_fit, str("io.write_budget has no room for writing all states anew: ",
                                               write_budget_.to_string()));
}

Result<std::string> Trainer::leave() {
  STRATA_TRY_ASSIGN(const std::string where, saved());
  count_work();
  return where;
}

void Trainer::go_on_in(Job& job) {
  engine_ = &job.engine();
  moved_before_ = engine_->moved();
  write_budget_.begin_in(planned_writes(engine_->plan()), outcome_.endurance_bytes,
                         engine_->nvme_endurance_bytes());
  steps_here_ = 0;
  outcome_.warm_steps = 0;
  outcome_.warm_clipped = 0;
  outcome_.warm_seconds = 0;
  outcome_.warm_lanes = {};
}

Result<TrainOutcome> Trainer::run() {
  if (outcome_.ending != Ending::rebudget) {
    begin_ns_ = clock_.now_ns();
    moved_before_ = engine_->moved();
    write_budget_.begin(engine_->nvme_endurance_bytes());
    saved_step_ = engine_->steps();
    outcome_.train_loss = folder_.resumed_loss();
  }
  outcome_.ending = Ending::finished;
  Status status;
  while (engine_->steps() < config_.train.steps) {
    if (!signals_.stop_requested() && looks_for_requests_ && request_.is_there()) {
      AllocCounter::set_armed(false);
      outcome_.ending = Ending::rebudget;
      return outcome_;
    }
    if (!write_budget_.allows_a_step()) {
      outcome_.ending = Ending::budget;
      outcome_.why_stopped = str("before io.write_budget was exceeded: ", write_budget_.to_string());
      break;
    }
    const std::int64_t next = engine_->steps() + 1;
    status = step(next);
    if (!status.is_ok()) break;
    STRATA_TRY(after_step(next));
    note_writes();
    if (signals_.stop_requested()) {
      outcome_.ending = Ending::stopped;
      outcome_.why_stopped = "by a signal";
      break;
    }
    if (static_cast<double>(clock_.now_ns() - begin_ns_) * 1e-9 >= config_.train.max_time_s) {
      outcome_.ending = next < config_.train.steps ? Ending::timed : Ending::finished;
      break;
    }
  }
  AllocCounter::set_armed(false);
  STRATA_TRY(status);
  STRATA_TRY(finish(outcome_));
  count_work();
  return outcome_;
}

// Around one step: what it made beside its results.
void Trainer::count_resources(bool begins) {
  if (steps_here_ < kFirstCounted || steps_here_ > kLastCounted) return;
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
  ++steps_here_;
  ++steps_taken_;
  if (trace_ != nullptr) trace_->set_enabled(config_.log.trace.contains(step));
  count_resources(true);
  const cpuopt::LrSchedule schedule = schedule_of(config_);
  MetricsLine line;
  line.step = step;
  line.lr = cpuopt::learning_rate(schedule, step);
  const LaneSeconds lanes_before = engine_->lane_seconds();
  STRATA_TRY(engine_->train_step(batches_, line.lr, line.report));
  const double tokens = tokens_per_step(config_);
  line.tokens_per_s = tokens / line.report.seconds;
  line.used = engine_->used_bytes();
  const MovedBytes moved = engine_->moved();
  line.moved = moved - moved_before_;
  moved_before_ = moved;
  step_seconds_ += line.report.seconds;
  if (steps_here_ > kFirstCounted) note_warm_step(line.report, lanes_before);
  outcome_.train_loss = line.report.loss;
  STRATA_TRY(note_skip(step, line.report));
  outcome_.times += line.report.times;
  outcome_.tokens_per_s = tokens * static_cast<double>(steps_taken_) / step_seconds_;
  STRATA_TRY(folder_.add_metrics(line));
  progress_.update({step, config_.train.steps, line.report.loss, outcome_.tokens_per_s, line.used[0],
                    line.used[1], line.used[2], static_cast<double>(clock_.now_ns() - begin_ns_) * 1e-9,
                    config_.train.max_time_s});
  count_resources(false);
  return Status::ok();
}

void Trainer::note_warm_step(const StepReport& report, const LaneSeconds& before) {
  ++outcome_.warm_steps;
  outcome_.warm_clipped += report.clip_factor < 1 ? 1 : 0;
  outcome_.warm_seconds += report.seconds;
  outcome_.warm_lanes += engine_->lane_seconds() - before;
}

// One bad batch is passed over; a model that gives nothing else is not worth the hours.
Status Trainer::note_skip(std::int64_t step, const StepReport& report) {
  constexpr std::int64_t kMostInARow = 100;
  skipped_in_a_row_ = report.skipped ? skipped_in_a_row_ + 1 : 0;
  if (!report.skipped) return Status::ok();
  ++outcome_.skipped_steps;
  progress_.line(str("step ", step, " skipped: ", report.why_skipped));
  if (skipped_in_a_row_ < kMostInARow) return Status::ok();
  return Status::error(
      Code::diverged,
      str(skipped_in_a_row_, " steps in a row were skipped; in the last one ", report.why_skipped));
}

// What happens between steps is outside the counted step.
Status Trainer::after_step(std::int64_t step) {
  const auto due = [&](std::int64_t every) {
    return every > 0 && step % every == 0 && step < config_.train.steps;
  };
  if (due(config_.train.eval_every)) STRATA_TRY(validate(step));
  if (due(config_.log.sample_every)) STRATA_TRY(sample(step));
  if (due(config_.checkpoint.every)) STRATA_TRY(save());
  return Status::ok();
}

void Trainer::note_writes() {
  write_budget_.after_step(engine_->nvme_endurance_bytes());
  if (write_budget_.is_limited() && write_budget_.steps() == WriteBudget::kMeasured)
    progress_.line(fmt::format("{}: good for some {:.0f} steps more", write_budget_.to_string(),
                               write_budget_.steps_left()));
}

Status Trainer::validate(std::int64_t step) {
  if (workload_.val() == nullptr) return Status::ok();
  const std::int64_t n = std::min<std::int64_t>(config_.train.eval_batches,
                                                n_micro_batches(*workload_.val(), config_.train.micro_batch));
  if (n == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const HeldOutLoss loss,
                    held_out_loss(*engine_, *workload_.val(), config_.train.micro_batch, n));
  progress_.line(fmt::format("step {}: validation loss {:.4f} over {} micro-batches", step, loss.nats, n));
  return Status::ok();
}

Status Trainer::sample(std::int64_t step) {
  const SampleOptions options{.tokens = config_.log.sample_tokens,
                              .seed = config_.train.seed + static_cast<std::uint64_t>(step)};
  STRATA_TRY_ASSIGN(const std::string text,
                    sample_text(*engine_, workload_.tokenizer(), config_.log.sample_prompt, options));
  STRATA_TRY(folder_.add_sample(step, config_.log.sample_prompt, text));
  progress_.line(str("sample at step ", step, ": ", config_.log.sample_prompt, text));
  return Status::ok();
}

Status Trainer::save() {
  // First: who goes on from the checkpoint needs it.
  if (config_.memory.backend == "cuda")
    STRATA_TRY(folder_.write(kProductChoices, record_of_products(products_of("cuda", config_.train.dtype,
                                                                             config_.train.attention))));
  STRATA_TRY_ASSIGN(saved_in_, save_checkpoint(*engine_, io_, checkpoint_dir(config_, folder_.path()),
                                               run_identity(config_, workload_), config_.checkpoint.keep));
  saved_step_ = engine_->steps();
  progress_.line(str("saved ", saved_in_));
  return Status::ok();
}

Result<std::string> Trainer::saved() {
  if (saved_in_.empty() || saved_step_ != engine_->steps()) STRATA_TRY(save());
  return saved_in_;
}

// Before the engine goes.
void Trainer::count_work() {
  outcome_.moved += engine_->moved();
  outcome_.lanes += engine_->lane_seconds();
  outcome_.endurance_bytes += engine_->nvme_endurance_bytes();
  outcome_.planned_in_ram = std::max(outcome_.planned_in_ram, bytes_in_ram(config_, engine_->plan()));
}

Status Trainer::finish(TrainOutcome& outcome) {
  outcome.train_seconds = step_seconds_;
  const bool saves = config_.checkpoint.at_end || outcome.ending != Ending::finished;
  if (saves && saved_step_ != engine_->steps()) STRATA_TRY(save());
  if (outcome.ending == Ending::stopped || outcome.ending == Ending::budget)
    return Status::ok();  // whoever asked to stop does not wait for a validation, which may write as well
  if (config_.log.sample_every > 0) STRATA_TRY(sample(engine_->steps()));
  if (const Dataset* val = workload_.val(); val != nullptr) {
    if (const std::int64_t n = n_micro_batches(*val, config_.train.micro_batch); n > 0) {
      STRATA_TRY_ASSIGN(const HeldOutLoss loss, held_out_loss(*engine_, *val, config_.train.micro_batch, n));
      outcome.val_loss = loss.nats;
      outcome.bits_per_byte = loss.bits_per_byte();
    }
  }
  STRATA_TRY_ASSIGN(outcome.state_digest, engine_->state_digest());
  return Status::ok();
}

std::map<std::string, std::string> run_identity(const TrainConfig& c, const Workload& workload) {
  std::map<std::string, std::string> identity = {{"data", workload.data_digest()}};
  const auto add = [&](const char* key, const auto& value) {
    identity.emplace(key, fmt::format("{}", value));
  };
  add("data.packing", workload.packing());
  identity.emplace("data.weights", fmt::format("{}", fmt::join(c.data.weights, ",")));
  add("model.family", c.model.family);
  const std::string decoder = hf_config_json(decoder_config(c), DType::f32);
  add("model.decoder", to_hex(digest_of(std::as_bytes(std::span(decoder)))));
  add("model.layers", c.model.layers);
  add("model.hidden", c.model.hidden);
  add("model.heads", c.model.heads);
  add("model.ffn", c.model.ffn);
  add("model.vocab", c.model.vocab);
  add("model.seq", c.model.seq);
  add("optim.name", c.optim.name);
  add("optim.lr", c.optim.lr);
  // What the optimizer does not read changes no bit.
  if (c.optim.name != "sgd" && c.optim.name != "adagrad") {
    add("optim.beta1", c.optim.beta1);
    add("optim.beta2", c.optim.beta2);
  }
  if (c.optim.name != "sgd" && c.optim.name != "lion") add("optim.eps", c.optim.eps);
  add("optim.weight_decay", c.optim.weight_decay);
  identity.emplace("optim.groups", fmt::format("{}", fmt::join(c.optim.groups, ",")));
  add("optim.clip", c.optim.clip);
  if (c.train.dtype == "f16") add("optim.loss_scale", c.optim.loss_scale);
  add("optim.warmup", c.optim.warmup);
  add("optim.schedule", c.optim.schedule);
  if (c.optim.schedule == "wsd") add("optim.decay_ratio", c.optim.decay_ratio);
  if (c.optim.name == "sgd") {
    add("optim.momentum", c.optim.momentum);
    add("optim.nesterov", c.optim.nesterov);
  }
  add("offload.states", c.offload.states);
  add("optim.min_lr_ratio", c.optim.min_lr_ratio);
  add("train.dtype", c.train.dtype);
  add("train.attention", c.train.attention);
  identity.emplace("train.fp8", c.train.fp8 ? "true" : "false");
  if (std::string products = products_of(c.memory.backend, c.train.dtype, c.train.attention);
      !products.empty())
    identity.emplace(kProducts, std::move(products));
  add("train.grad_accum", c.train.grad_accum);
  add("train.micro_batch", c.train.micro_batch);
  add("train.seed", c.train.seed);
  identity.emplace("train.freeze", fmt::format("{}", fmt::join(c.train.freeze, ",")));
  if (!c.train.freeze.empty() && c.train.dtype != "f32")  // else they are the parameters
    identity.emplace("train.frozen_masters", c.train.frozen_masters.value_or(true) ? "true" : "false");
  add("train.steps", c.train.steps);  // kScheduleSteps
  return identity;
}

Status check_identity(const std::map<std::string, std::string>& saved,
                      const std::map<std::string, std::string>& now) {
  std::string problems;
  bool sizes_differ = false;
  for (const auto& [key, value] : now)
    if (const auto found = saved.find(key);
        key.starts_with("model.") && key != "model.decoder" && found != saved.end() && found->second != value)
      sizes_differ = true;
  for (const auto& [key, value] : now) {
    if (key == kProducts) continue;                        // the machine's; who goes on is told
    if (key == kScheduleSteps) continue;                   // a run may be made longer; who does so is told
    if (key == "model.decoder" && sizes_differ) continue;  // which follows from what is told
    const auto found = saved.find(key);
    const std::string was = found != saved.end()       ? found->second
                            : key == "data.packing"    ? "stream"  // all there was before the key
                            : key == "offload.states"  ? "fp32"
                            : key == "data.weights"    ? ""
                            : key == "train.fp8"       ? "false"
                            : key == "train.attention" ? "mma"
                            : key == "train.freeze" || key == "optim.groups" ? ""
                            : key == "model.decoder" ? value  // the keys beside it were all there was
                                                     : "nothing";
    if (was != value)
      problems += str(problems.empty() ? "" : "\n", key, ": the checkpoint was made with ", was,
                      ", this run has ", value);
  }
  return problems.empty() ? Status::ok() : Status::error(Code::invalid, problems);
}

}  // namespace strata::cli
