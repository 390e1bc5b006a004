#include <strata/session/step_machine.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <strata/runtime/str.h>

#include "ranks/parameter_gather.h"
#include "ranks/step_reduction.h"
#include "step/commit.h"
#include "step/gradient_accumulation.h"
#include "step/speculation.h"

namespace strata {

struct StepMachine::Trainee {
  Trainee(StateContext& context, const PassSchedule& step)
      : number(step.trainee), speculation(context, step), commit(context, speculation, step) {
    if (context.plan().scales_loss()) loss_scale.value = context.plan().options.loss_scale;
  }
  const std::int32_t number;
  detail::Speculation speculation;
  detail::Commit commit;
  std::int64_t steps = 0;
  LossScale loss_scale;
  double gradient_scale = 1;  // the factor by which the norm partials' gradients are larger than the mean
};

struct StepMachine::Parts {
  Parts(StateContext& context, std::span<const PassSchedule> steps) : gather(context), reduction(context) {
    for (const PassSchedule& step : steps) trainees.push_back(std::make_unique<Trainee>(context, step));
  }
  /// Queues the pending updates up to that of a chunk, of whichever trainee it is.
  Status advance_to(ChunkId chunk) {
    for (const auto& trainee : trainees) STRATA_TRY(trainee->commit.advance_to(chunk));
    return {};
  }
  bool is_pending(ChunkId chunk) const noexcept {
    return std::any_of(trainees.begin(), trainees.end(),
                       [&](const auto& trainee) { return trainee->commit.is_pending(chunk); });
  }
  std::vector<std::unique_ptr<Trainee>> trainees;
  detail::ParameterGather gather;
  detail::StepReduction reduction;
};

StepMachine::StepMachine(StateContext& context, std::span<const PassSchedule> steps, std::size_t max_params)
    : context_(context),
      parts_(std::make_unique<Parts>(context, steps)),
      params_(max_params),
      open_grads_(context.plan().layout.n_chunks()) {
  active_ = parts_->trainees.front().get();
}
StepMachine::~StepMachine() = default;

// --- passes ---

void StepMachine::activate(const PassSchedule& schedule) {
  next_param_ = 0;
  if (current_ != &schedule) context_.use_schedule().set_uses(schedule.uses, schedule.cycle);
  current_ = &schedule;
}

Status StepMachine::enter(const Pass& pass, std::int32_t i) {
  ChunkManager& chunks = context_.chunks();
  Stream& compute = context_.streams().compute;
  const UseTrace::Position& position = pass.uses.positions[static_cast<std::size_t>(i)];
  if (i == 0) {
    next_ready_ = 0;
    parts_->gather.begin_pass();
  }
  context_.use_schedule().set_position(pass.first_position() + i);
  STRATA_TRY(make_current(position));
  STRATA_TRY(gather_due(pass, i));
  for (std::size_t p = 0; p < position.params.size(); ++p) {
    const ChunkId chunk = position.params[p];
    STRATA_TRY_ASSIGN(params_[p], chunks.pin({chunk, context_.plan().layout.read_payload(chunk)},
                                             Tier::device, Intent::read, compute));
  }
  for (const GradWrite& write : position.grads)
    if (write.first) {
      STRATA_TRY_ASSIGN(open_grads_[write.chunk],
                        chunks.pin({write.chunk, Payload::grad}, Tier::device, Intent::overwrite, compute));
    }
  return Status::ok();
}

std::byte* StepMachine::param(const UseTrace::Position& position, ChunkId chunk) const noexcept {
  for (std::size_t p = 0; p < position.params.size(); ++p)
    if (position.params[p] == chunk) return params_[p].view().data;
  return nullptr;
}

std::byte* StepMachine::gradient(ChunkId chunk) const noexcept { return open_grads_[chunk].view().data; }

Status StepMachine::leave(const Pass& pass, std::int32_t i) {
  const UseTrace::Position& position = pass.uses.positions[static_cast<std::size_t>(i)];
  for (std::size_t p = 0; p < position.params.size(); ++p) params_[p] = ChunkPin();
  for (const GradWrite& write : position.grads)
    if (write.last) {
      open_grads_[write.chunk] = ChunkPin();
      if (pass.accumulates)
        STRATA_TRY(detail::accumulate_gradient(context_, write.chunk, pass.is_first(), pass.is_last()));
    }
  STRATA_TRY(parts_->gather.release(pass.gathers(), i));
  if (pass.accumulates && pass.is_last()) {
    const std::vector<ChunkPosition>& ready = pass.schedule.ready;
    for (; next_ready_ < ready.size() && ready[next_ready_].first <= i; ++next_ready_)
      STRATA_TRY(active_->speculation.update(ready[next_ready_].second));
    if (!position.grads.empty()) STRATA_TRY(active_->commit.prefetch_states());
  }
  STRATA_TRY(prefetch_params(pass.schedule, pass.first_position() + i));
  STRATA_TRY(context_.chunks().write_backs().pump());
  return context_.chunks().status();
}

// Updates the chunks that the position reads, if the previous step's update of them is pending; before the
// first gradient of a trainee is written, updates all of its chunks.
Status StepMachine::make_current(const UseTrace::Position& position) {
  for (const ChunkId chunk : position.params) STRATA_TRY(parts_->advance_to(chunk));
  return position.grads.empty() || !active_->commit.is_pending() ? Status::ok()
                                                                 : active_->commit.advance_to_end();
}

Status StepMachine::gather_due(const Pass& pass, std::int32_t i) {
  for (std::int64_t due = 0; (due = parts_->gather.due(pass.gathers(), i)) >= 0;) {
    const auto chunk = static_cast<ChunkId>(due);
    STRATA_TRY(parts_->advance_to(chunk));
    STRATA_TRY(parts_->gather.gather(chunk));
  }
  return {};
}

// A shard is not needed while there is a gathered copy, nor a copy before it is gathered.
bool StepMachine::is_fetched_later(PayloadKey key) const noexcept {
  return context_.plan().layout.has(key.chunk, Payload::gathered) &&
         (key.payload == Payload::param) == parts_->gather.is_current(key.chunk);
}

// Keeps the next `prefetch` parameter chunks in flight to the device, and as many after them in flight to
// RAM.
Status StepMachine::prefetch_params(const PassSchedule& schedule, std::int32_t position) {
  const std::size_t depth = *context_.plan().options.prefetch;
  if (depth == 0) return Status::ok();
  while (next_param_ < schedule.params.size() && schedule.params[next_param_].position <= position)
    ++next_param_;
  const std::size_t end = std::min(next_param_ + depth, schedule.params.size());
  const std::size_t far_end = std::min(next_param_ + 2 * depth, schedule.params.size());
  ChunkManager& chunks = context_.chunks();
  // A parameter may come to RAM before its pending update, which then happens there.
  for (std::size_t next = end; next < far_end; ++next) {
    const PayloadKey key = schedule.params[next].key;
    if (context_.plan().placement.home(key) != Tier::nvme || is_fetched_later(key) ||
        chunks.residency().state(key, Tier::device) != Residency::absent)
      continue;
    STRATA_TRY_ASSIGN(const bool begun, chunks.prefetch(key, Tier::pinned));
    if (!begun) break;
  }
  for (std::size_t next = next_param_; next < end; ++next) {
    const PayloadKey key = schedule.params[next].key;
    // How far ahead a rank prefetches is its own affair, so what it exchanges must not depend on it.
    if (exchanges_norms(context_.plan().options) && active_->commit.is_pending(key.chunk)) break;
    STRATA_TRY(parts_->advance_to(key.chunk));
    if (is_fetched_later(key)) continue;
    STRATA_TRY_ASSIGN(const bool begun, chunks.prefetch(key, Tier::device));
    if (!begun) break;
  }
  return Status::ok();
}

// After a failure: releases the pins and drops the micro-batch's gradients.
void StepMachine::release() noexcept {
  for (ChunkPin& pin : params_) pin = ChunkPin();
  for (ChunkPin& pin : open_grads_) pin = ChunkPin();
  for (Stream* stream : context_.streams().all())
    // An error is sticky, and is reported at the stream's next use.
    if (stream->id() >= 0) (void)context_.backend().synchronize(*stream);
  context_.chunks().abort_pending();  // so that drops need not wait and cannot fail
  for (ChunkId chunk = 0; chunk < context_.plan().layout.n_chunks(); ++chunk)
    for (const Payload payload : {Payload::grad, Payload::received})
      (void)context_.chunks().drop({chunk, payload});
  parts_->gather.abandon();
}

// Does the same and also drops accumulated gradients, except those that pending updates of other trainees
// need.
void StepMachine::abandon() noexcept {
  release();
  for (ChunkId chunk = 0; chunk < context_.plan().layout.n_chunks(); ++chunk)
    if (!parts_->is_pending(chunk)) (void)context_.chunks().drop({chunk, Payload::accum});
}

// --- steps ---

std::int32_t StepMachine::n_trainees() const noexcept {
  return static_cast<std::int32_t>(parts_->trainees.size());
}
StepMachine::Trainee& StepMachine::trainee(std::int32_t number) const noexcept {
  return *parts_->trainees[static_cast<std::size_t>(number)];
}
std::int64_t StepMachine::steps(std::int32_t number) const noexcept { return trainee(number).steps; }
LossScale& StepMachine::loss_scale(std::int32_t number) noexcept { return trainee(number).loss_scale; }
const LossScale& StepMachine::loss_scale(std::int32_t number) const noexcept {
  return trainee(number).loss_scale;
}

cpuopt::OptimizerParams StepMachine::optimizer_params(double lr, double clip_factor) const {
  cpuopt::OptimizerParams params = context_.plan().options.optimizer;
  params.lr = lr;
  params.step = active_->steps + 1;
  params.grad_factor =
      clip_factor / context_.plan().micro_batches(active_->number) / active_->loss_scale.value;
  return params;
}

Status StepMachine::begin(double lr, std::int32_t number) {
  active_ = &trainee(number);
  in_step_ = true;
  STRATA_TRY(active_->speculation.begin(optimizer_params(lr, 1.0)));
  active_->commit.restart_prefetch();
  return Status::ok();
}

Status StepMachine::finish_gradient(StepReport& report, std::span<float> losses, std::span<double> sums) {
  Trainee& of = *active_;
  STRATA_TRY(of.commit.wait_for_gradients());
  STRATA_TRY(parts_->reduction.run(losses, sums, report.flags));
  STRATA_TRY_ASSIGN(const double scaled_norm, of.commit.gradient_norm(of.loss_scale.value, report.flags));
  report.grad_norm = scaled_norm / of.loss_scale.value;
  of.gradient_scale = context_.plan().micro_batches(of.number) * of.loss_scale.value;
  report.speculated += of.speculation.n_updated();
  return Status::ok();
}

void StepMachine::gradient_norms(std::span<double> norms) const {
  active_->commit.gradient_norms(norms);
  for (double& norm : norms) norm /= active_->gradient_scale;
}

Status StepMachine::share_losses(std::span<float> losses) { return parts_->reduction.share(losses); }

Status StepMachine::non_finite_error() { return active_->commit.non_finite_error(); }

Status StepMachine::interrupted(const Status& why, const char* what) const {
  return why.annotate(str(what, " ", active_->steps + 1,
                          " was interrupted, so the states do not belong to any step; load a checkpoint"));
}

// In mode `serial` the next forward starts once every chunk is committed.
Status StepMachine::commit(double lr, StepReport& report) {
  const double clip = context_.plan().clip(active_->number);
  detail::Commit& commit = active_->commit;
  report.clip_factor = clip > 0 ? std::min(1.0, clip / (report.grad_norm + 1e-6)) : 1.0;
  if (report.clip_factor != 1.0) report.rolled_back += active_->speculation.n_updated();
  STRATA_TRY(commit.begin(optimizer_params(lr, report.clip_factor)));
  parts_->gather.invalidate();
  if (context_.plan().options.step_mode == StepMode::serial) {
    Status status = commit.finish();
    if (status.is_ok()) status = context_.backend().synchronize(context_.streams().cpu);
    if (status.is_ok()) status = context_.backend().synchronize(context_.streams().compute);
    commit.cancel();
    if (!status.is_ok() && commit.changed_states()) broken_ = interrupted(status, "the update of step");
    STRATA_TRY(status);
  }
  count_step();
  return Status::ok();
}

void StepMachine::skip() noexcept { count_step(); }

void StepMachine::count_step() noexcept {
  ++active_->steps;
  in_step_ = false;
}

Status StepMachine::undo(StepReport& report) {
  report.rolled_back += active_->speculation.n_updated();
  return undo_step();
}

Status StepMachine::undo_step() {
  const Status status = active_->speculation.roll_back();
  abandon();
  if (!status.is_ok()) broken_ = interrupted(status, "rolling back step");
  return broken_;
}

Status StepMachine::fail(const Status& why) {
  const bool in_step = std::exchange(in_step_, false);
  if (!in_step || active_->commit.is_pending()) {
    release();
    return why;
  }
  (void)undo_step();
  return broken_.is_ok() ? why : broken_;
}

void StepMachine::record_step(double seconds) noexcept { active_->speculation.record_step(seconds); }

// --- between steps ---

Status StepMachine::flush() {
  STRATA_TRY(broken_);
  for (const auto& trainee : parts_->trainees) {
    if (!trainee->commit.is_pending()) continue;
    Status status = trainee->commit.finish();
    if (status.is_ok()) continue;
    release();  // errors of failed prefetches are not left for the next call
    return std::move(status).annotate(str("the update of step ", trainee->steps, " is still pending"));
  }
  return {};
}

void StepMachine::forget_gathered() noexcept { parts_->gather.invalidate(); }

void StepMachine::flush_or_discard() noexcept {
  parts_->gather.invalidate();
  if (flush().is_ok()) return;
  for (const auto& trainee : parts_->trainees) trainee->commit.cancel();
  abandon();
  if (broken_.is_ok())
    broken_ =
        Status::error(Code::internal, str("the update of step ", active_->steps,
                                          " was discarded, and not all states have been set anew since"));
}

void StepMachine::set_steps(std::int64_t steps, std::int32_t number) noexcept {
  trainee(number).steps = steps;
  broken_ = Status::ok();
}

}  // namespace strata
