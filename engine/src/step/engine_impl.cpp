#include "step/engine_impl.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include <strata/runtime/str.h>

namespace strata {

void Engine::Impl::activate(const ProgramSchedule& schedule) {
  executor_.rewind();
  if (current_ != &schedule) context_->use_schedule.set_uses(schedule.uses, schedule.cycle);
  current_ = &schedule;
}

namespace {

constexpr const char* kInputs[] = {"tokens",    "targets", "doc_start",    "divisor",
                                   "positions", "slots",   "logit_indices"};

}  // namespace

// Copies the filled input slot, which holds the program's inputs one after the other, micro-batch by
// micro-batch, to the arena once the last pass is done with it. The compute stream waits for the copy.
Status Engine::Impl::upload(const LoweredProgram& program) {
  ExecutionContext& m = *context_;
  const std::size_t slot = slot_;
  slot_ ^= 1;
  STRATA_TRY(m.backend.wait_on_async(arena_free_, m.h2d));
  const auto* from = reinterpret_cast<const std::byte*>(m.input_slot(slot));
  for (std::int32_t k = 0; k < program.micro_batches; ++k)
    for (const char* name : kInputs) {
      const Operand operand = program.find(name, k);
      if (operand.location == Operand::Location::none) continue;
      const std::size_t bytes = static_cast<std::size_t>(operand.shape.n_elems()) * size_of(operand.dtype);
      STRATA_TRY(m.backend.copy_async({m.arena(operand), bytes}, {from, bytes}, m.h2d));
      from += bytes;
    }
  STRATA_TRY_ASSIGN(uploaded_[slot], m.backend.record(m.h2d));
  return m.backend.wait_on_async(uploaded_[slot], m.compute);
}

Status Engine::Impl::load_batch(const LoweredProgram& program, BatchSource& source, std::int64_t index,
                                float divisor) {
  ExecutionContext& m = *context_;
  STRATA_TRY(m.backend.wait(uploaded_[slot_]));
  std::int32_t* const begin = m.input_slot(slot_);
  STRATA_TRY(
      m.backend.host_access({reinterpret_cast<const std::byte*>(begin), m.pinned_layout.inputs, true}));
  std::int32_t* at = begin;  // every input has 4-byte elements
  for (std::int32_t k = 0; k < program.micro_batches; ++k) {
    std::span<std::int32_t> parts[std::size(kInputs)];
    for (std::size_t i = 0; i < std::size(kInputs); ++i) {
      const Operand operand = program.find(kInputs[i], k);
      if (operand.location == Operand::Location::none) continue;
      parts[i] = {at, static_cast<std::size_t>(operand.shape.n_elems())};
      at += operand.shape.n_elems();
    }
    if (m.is_dataless()) continue;
    const HostWaitScope waits(m.backend.stall_meter(), StallCause::data);
    STRATA_TRY(source.fill(index + k, {parts[0], parts[1], parts[2]}));
    if (!parts[3].empty()) std::memcpy(parts[3].data(), &divisor, sizeof divisor);
  }
  return upload(program);
}

// Returns the value by which each of `n` micro-batches divides its sum of losses, so that the mean of the
// results is the mean over all counted targets.
Result<float> Engine::Impl::loss_divisor(BatchSource& source, std::int64_t index, std::int64_t n) {
  if (context_->is_dataless()) return 1.0f;
  const std::int64_t counted = source.n_counted(index, n);
  if (counted < 0)
    return Status::error(Code::invalid, str("the batch source reports ", counted,
                                            " counted targets; there must be at least 0"));
  return static_cast<float>(static_cast<double>(counted) / static_cast<double>(n));
}

Status Engine::Impl::read_back(std::byte* to, const std::byte* from, std::size_t bytes) {
  ExecutionContext& m = *context_;
  STRATA_TRY_ASSIGN(const Event done, m.backend.record(m.compute));
  STRATA_TRY(m.backend.wait_on_async(done, m.d2h));
  STRATA_TRY(m.backend.copy_async({to, bytes}, {from, bytes}, m.d2h));
  STRATA_TRY_ASSIGN(arena_free_, m.backend.record(m.d2h));
  return m.backend.wait_on_async(arena_free_, m.compute);  // the next pass may overwrite it
}

Status Engine::Impl::read_back_losses(const LoweredProgram& program, std::int32_t first) {
  for (std::int32_t k = 0; k < program.micro_batches; ++k)
    STRATA_TRY(read_back(reinterpret_cast<std::byte*>(context_->losses() + first + k),
                         context_->arena(program.find("loss", k)), sizeof(float)));
  return Status::ok();
}

Status Engine::Impl::train_step(BatchSource& source, double lr, StepReport& report) {
  ExecutionContext& m = *context_;
  if (plan().train.code.empty())
    return Status::error(Code::unsupported, "this run has no program for training");
  STRATA_TRY(broken);
  const std::int64_t begin = m.clock.now_ns();
  const StallTimes before = stall_times();
  report.overflow_retries = report.speculated = report.rolled_back = 0;
  report.skip_reason.clear();
  const LossScale scale_before = loss_scale;
  report.clip_factor = 1;
  Status status = compute_gradient(source, lr, report);
  for (; status.is_ok() && !std::isfinite(report.grad_norm) && loss_scale.back_off();
       ++report.overflow_retries) {
    report.rolled_back += speculation_.n_updated();
    status = undo_step();
    if (status.is_ok()) status = compute_gradient(source, lr, report);
  }
  report.skipped = status.is_ok() && !std::isfinite(report.grad_norm);
  if (report.skipped && plan().options.non_finite == NonFinite::stop) status = commit_.non_finite_error();
  if (status.is_ok() && report.skipped) {
    report.skip_reason = commit_.non_finite_error().message();
    loss_scale = scale_before;  // no scale would have helped
    report.rolled_back += speculation_.n_updated();
    status = undo_step();
  }
  const std::int64_t norm_known = m.clock.now_ns();
  if (status.is_ok() && !report.skipped) status = commit(lr, report);
  if (!status.is_ok()) return fail_step(status);
  ++steps;
  report.loss_scale = loss_scale.value;
  if (plan().scales_loss() && !report.skipped) loss_scale.step_done();
  m.end_phase("commit", steps, norm_known);
  const std::int64_t end = m.clock.now_ns();
  report.seconds = static_cast<double>(end - begin) * 1e-9;
  report.times = stall_times() - before;
  speculation_.record_step(report.seconds);
  return Status::ok();
}

StallTimes Engine::Impl::stall_times() {
  StallMeter* const meter = context_->backend.stall_meter();
  return meter == nullptr ? StallTimes{} : meter->times();
}

// Discards the step's gradients and rolls back its speculative updates.
Status Engine::Impl::undo_step() {
  const Status status = speculation_.roll_back();
  executor_.abandon();
  if (!status.is_ok())
    broken =
        status.annotate(str("rolling back step ", steps + 1,
                            " was interrupted, so the states do not belong to any step; load a checkpoint"));
  return broken;
}

Status Engine::Impl::flush_pending_update() {
  STRATA_TRY(broken);
  if (!commit_.is_pending()) return Status::ok();
  Status status = commit_.finish();
  if (status.is_ok()) return status;
  executor_.release();  // errors of failed prefetches are not left for the next call
  return status.annotate(str("the update of step ", steps, " is still pending"));
}

void Engine::Impl::flush_or_discard() noexcept {
  if (flush_pending_update().is_ok()) return;
  commit_.cancel();
  executor_.abandon();
  if (broken.is_ok())
    broken = Status::error(
        Code::internal,
        str("the update of step ", steps, " was discarded, and not all states ", "have been set anew since"));
}

// Leaves the state before the failed step, or a pending update of the step before it.
Status Engine::Impl::fail_step(const Status& why) {
  if (commit_.is_pending()) {
    executor_.release();
    return why;
  }
  (void)undo_step();
  return broken.is_ok() ? why : broken;
}

// Runs forward and backward of every micro-batch, and computes their gradient norm and loss.
Status Engine::Impl::compute_gradient(BatchSource& source, double lr, StepReport& report) {
  ExecutionContext& m = *context_;
  const EngineOptions& options = plan().options;
  activate(train_);
  STRATA_TRY(speculation_.begin(optimizer_params(lr, 1.0)));
  commit_.restart_prefetch();
  const std::int64_t first = steps * options.grad_accum;
  STRATA_TRY_ASSIGN(float divisor, loss_divisor(source, first, options.grad_accum));
  divisor /= static_cast<float>(loss_scale.value);  // scales the loss, and with it the gradient
  const LoweredProgram& train = plan().train;
  for (std::int32_t pass = 0; pass < plan().passes(); ++pass) {
    const std::int64_t pass_begin = m.clock.now_ns();
    const std::int32_t k = pass * train.micro_batches;
    STRATA_TRY(load_batch(train, source, first + k, divisor));
    STRATA_TRY(executor_.run({train, train_, pass, true, pass + 1 == plan().passes()}));
    STRATA_TRY(read_back_losses(train, k));
    m.end_phase("queue micro-batch", k, pass_begin);
  }
  const std::int64_t passes_queued = m.clock.now_ns();
  STRATA_TRY_ASSIGN(const double scaled_norm, commit_.gradient_norm(options.grad_accum, loss_scale.value));
  report.grad_norm = scaled_norm / loss_scale.value;
  report.speculated += speculation_.n_updated();
  m.end_phase("wait for gradients", steps + 1, passes_queued);
  STRATA_TRY(m.backend.wait(arena_free_));
  STRATA_TRY(m.backend.host_access({reinterpret_cast<const std::byte*>(m.losses()),
                                    sizeof(float) * static_cast<std::size_t>(options.grad_accum), false}));
  float sum = 0;
  for (std::int32_t k = 0; k < options.grad_accum && !m.is_dataless(); ++k) sum += m.losses()[k];
  report.loss = sum / static_cast<float>(options.grad_accum) / static_cast<float>(loss_scale.value);
  return Status::ok();
}

cpuopt::OptimizerParams Engine::Impl::optimizer_params(double lr, double clip_factor) const {
  cpuopt::OptimizerParams params = plan().options.optimizer;
  params.lr = lr;
  params.step = steps + 1;
  params.grad_factor = clip_factor / plan().options.grad_accum / loss_scale.value;
  return params;
}

// In mode `serial` the next forward starts once every chunk is committed.
Status Engine::Impl::commit(double lr, StepReport& report) {
  ExecutionContext& m = *context_;
  const EngineOptions& options = plan().options;
  report.clip_factor = options.clip > 0 ? std::min(1.0, options.clip / (report.grad_norm + 1e-6)) : 1.0;
  if (report.clip_factor != 1.0) report.rolled_back += speculation_.n_updated();
  STRATA_TRY(commit_.begin(optimizer_params(lr, report.clip_factor)));
  if (options.step_mode != StepMode::serial) return Status::ok();
  Status status = commit_.finish();
  if (status.is_ok()) status = m.backend.synchronize(m.cpu);
  if (status.is_ok()) status = m.backend.synchronize(m.compute);
  commit_.cancel();
  if (!status.is_ok() && commit_.changed_states())
    broken =
        status.annotate(str("the update of step ", steps + 1,
                            " was interrupted, so the states do not belong to any step; load a checkpoint"));
  return status;
}

Result<double> Engine::Impl::evaluate(BatchSource& source, std::int64_t n) {
  ExecutionContext& m = *context_;
  if (plan().eval.code.empty())
    return Status::error(Code::unsupported, "this run has no program for evaluation");
  STRATA_TRY(flush_pending_update());
  if (n < 1) return 0.0;
  STRATA_TRY_ASSIGN(const float divisor, loss_divisor(source, 0, n));
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    activate(eval_);
    STRATA_TRY(load_batch(plan().eval, source, i, divisor));
    STRATA_TRY(executor_.run({plan().eval, eval_, 0, false, false}));
    STRATA_TRY(read_back_losses(plan().eval, 0));
    STRATA_TRY(m.backend.wait(arena_free_));
    STRATA_TRY(m.backend.host_access({reinterpret_cast<const std::byte*>(m.losses()), sizeof(float), false}));
    if (!m.is_dataless()) sum += m.losses()[0];
  }
  return sum / static_cast<double>(n);
}

Result<std::span<const float>> Engine::Impl::infer(std::span<const std::int32_t> tokens, std::int64_t row) {
  ExecutionContext& m = *context_;
  const Operand input = plan().infer.find("tokens"), logits = plan().infer.find("logits");
  if (input.location == Operand::Location::none)
    return Status::error(Code::unsupported, "this run has no program for inference");
  STRATA_TRY(flush_pending_update());
  if (static_cast<std::int64_t>(tokens.size()) != input.shape.n_elems() || row < 0 ||
      row >= input.shape.n_elems())
    return Status::error(Code::invalid,
                         str("inference needs ", input.shape.n_elems(),
                             " tokens and the row of one of them; given ", tokens.size(), " and row ", row));
  activate(infer_);
  STRATA_TRY(m.backend.wait(uploaded_[slot_]));
  STRATA_TRY(m.backend.host_access(
      {reinterpret_cast<const std::byte*>(m.input_slot(slot_)), tokens.size_bytes(), true}));
  if (!m.is_dataless()) std::copy(tokens.begin(), tokens.end(), m.input_slot(slot_));
  STRATA_TRY(upload(plan().infer));
  STRATA_TRY(executor_.run({plan().infer, infer_, 0, false, false}));
  const auto vocab = static_cast<std::size_t>(logits.shape.dim(-1));
  STRATA_TRY(read_back(reinterpret_cast<std::byte*>(m.logits()),
                       m.arena(logits) + static_cast<std::size_t>(row) * vocab * sizeof(float),
                       vocab * sizeof(float)));
  STRATA_TRY(m.backend.wait(arena_free_));
  STRATA_TRY(
      m.backend.host_access({reinterpret_cast<const std::byte*>(m.logits()), vocab * sizeof(float), false}));
  return std::span<const float>(m.logits(), vocab);
}

Result<std::span<const float>> Engine::Impl::extend(std::span<const SequenceToken> tokens,
                                                    std::span<const std::int32_t> wanted) {
  ExecutionContext& m = *context_;
  if (plan().decode.code.empty())
    return Status::error(Code::unsupported, "this run has no programs that continue sequences");
  STRATA_TRY(flush_pending_update());
  STRATA_TRY(kv_cache_.check(tokens, wanted));
  const bool decodes = kv_cache_.fits_decode(tokens, wanted);
  const LoweredProgram& program = decodes ? plan().decode : plan().prefill;
  const ProgramSchedule& schedule = decodes ? decode_ : prefill_;
  activate(schedule);
  STRATA_TRY(m.backend.wait(uploaded_[slot_]));
  STRATA_TRY(m.backend.host_access(
      {reinterpret_cast<const std::byte*>(m.input_slot(slot_)), kv_cache_.input_bytes(program), true}));
  if (!m.is_dataless()) kv_cache_.write(program, tokens, wanted, m.input_slot(slot_));
  STRATA_TRY(upload(program));
  STRATA_TRY(executor_.run({program, schedule, 0, false, false}));
  const Operand logits = program.find("logits");
  const std::size_t n = wanted.size() * static_cast<std::size_t>(logits.shape.dim(-1));
  if (n == 0) {  // more tokens follow, so no logits are read and nothing is waited for
    STRATA_TRY_ASSIGN(arena_free_, m.backend.record(m.compute));
    kv_cache_.advance();
    return std::span<const float>();
  }
  STRATA_TRY(read_back(reinterpret_cast<std::byte*>(m.logits()), m.arena(logits), n * sizeof(float)));
  STRATA_TRY(m.backend.wait(arena_free_));
  STRATA_TRY(
      m.backend.host_access({reinterpret_cast<const std::byte*>(m.logits()), n * sizeof(float), false}));
  kv_cache_.advance();
  return std::span<const float>(m.logits(), n);
}

}  // namespace strata
