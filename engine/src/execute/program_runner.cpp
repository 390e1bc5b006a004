#include "execute/program_runner.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <strata/runtime/str.h>

namespace strata::detail {

ProgramRunner::ProgramRunner(StateContext& context, StepMachine& machine, const RunPlan& plan,
                             const PassSchedule& training, const InstructionCosts* costs)
    : context_(context),
      machine_(machine),
      memory_(plan, context.memory()),
      executor_(context, machine, memory_, plan, costs),
      kv_cache_(plan) {
  std::size_t max_inputs = 0;
  replays_.reserve(plan.programs.size());
  for (const PlannedProgram& planned : plan.programs) {
    const bool trains = planned.role == ProgramRole::train;
    replays_.push_back({planned, PassSchedule(), &training});
    if (!trains) {
      replays_.back().own = make_schedule(planned.program.uses, plan, 1, CommitTiming::never);
      replays_.back().schedule = &replays_.back().own;
    }
    max_inputs = std::max(max_inputs, planned.program.bindings.size());
  }
  inputs_.reserve(max_inputs);
}

const ProgramRunner::Replay* ProgramRunner::find(ProgramRole role) const noexcept {
  const auto found = std::find_if(replays_.begin(), replays_.end(),
                                  [&](const Replay& replay) { return replay.planned.role == role; });
  return found == replays_.end() ? nullptr : &*found;
}
const ProgramRunner::Replay* ProgramRunner::find(std::string_view name) const noexcept {
  const auto found = std::find_if(replays_.begin(), replays_.end(),
                                  [&](const Replay& replay) { return replay.planned.name == name; });
  return found == replays_.end() ? nullptr : &*found;
}

// Runs a program that does not train.
Status ProgramRunner::run(const Replay& replay) {
  return executor_.run(replay.program(), {replay.program().uses, *replay.schedule});
}

// The inputs of a micro-batch in the next input slot, once that slot may be written. Without data they have
// no values.
Result<BatchView> ProgramRunner::open_inputs(const LoweredProgram& program, std::int32_t micro_batch) {
  if (micro_batch == 0) {
    STRATA_TRY(context_.backend().wait(uploaded_[slot_]));
    STRATA_TRY(context_.backend().host_access({memory_.input_slot(slot_), program.input_bytes, true}));
  }
  inputs_.clear();
  for (const LoweredProgram::Binding& binding : program.bindings) {
    if (!binding.is_input || binding.micro_batch != micro_batch) continue;
    auto* const values = reinterpret_cast<std::int32_t*>(memory_.input_slot(slot_) + binding.slot_offset);
    inputs_.push_back({binding.name, context_.host_values(values, binding.operand.bytes() / sizeof *values)});
  }
  return BatchView{inputs_};
}

// Copies the filled input slot to the arena once the last pass is done with it. The compute stream waits for
// the copy.
Status ProgramRunner::upload(const LoweredProgram& program) {
  Backend& backend = context_.backend();
  SessionStreams& streams = context_.streams();
  const std::size_t slot = slot_;
  slot_ ^= 1;
  STRATA_TRY(backend.wait_on_async(arena_free_, streams.h2d));
  const std::byte* const from = memory_.input_slot(slot);
  for (const LoweredProgram::Binding& binding : program.bindings) {
    if (!binding.is_input) continue;
    const std::size_t bytes = binding.operand.bytes();
    STRATA_TRY(backend.copy_async({memory_.arena(binding.operand), bytes},
                                  {from + binding.slot_offset, bytes}, streams.h2d));
  }
  STRATA_TRY_ASSIGN(uploaded_[slot], backend.record(streams.h2d));
  return backend.wait_on_async(uploaded_[slot], streams.compute);
}

Status ProgramRunner::load_batch(const LoweredProgram& program, BatchSource& source, std::int64_t index,
                                 float divisor) {
  for (std::int32_t k = 0; k < program.micro_batches; ++k) {
    STRATA_TRY_ASSIGN(const BatchView batch, open_inputs(program, k));
    const HostWaitScope waits(context_.backend().stall_meter(), StallCause::data);
    const RankProgress::UserCode in_source(context_.progress(), "the batch source");
    STRATA_TRY(source.fill(index + std::int64_t{k} * n_ranks(), batch));
    if (const std::span<std::int32_t> into = batch["divisor"]; !into.empty())
      std::memcpy(into.data(), &divisor, sizeof divisor);
  }
  return upload(program);
}

// Returns the value by which each of `n` micro-batches divides its sum of losses, so that the mean of the
// results is the mean over all counted targets.
Result<float> ProgramRunner::loss_divisor(BatchSource& source, std::int64_t index, std::int64_t n) {
  std::int64_t counted = 0;
  {
    const RankProgress::UserCode in_source(context_.progress(), "the batch source");
    counted = source.n_counted(index, n);
  }
  if (counted < 0)
    return Status::error(Code::invalid, str("the batch source reports ", counted,
                                            " counted targets; there must be at least 0"));
  return static_cast<float>(static_cast<double>(counted) / static_cast<double>(n));
}

Status ProgramRunner::read_back(std::byte* to, const std::byte* from, std::size_t bytes) {
  Backend& backend = context_.backend();
  SessionStreams& streams = context_.streams();
  STRATA_TRY_ASSIGN(const Event done, backend.record(streams.compute));
  STRATA_TRY(backend.wait_on_async(done, streams.d2h));
  STRATA_TRY(backend.copy_async({to, bytes}, {from, bytes}, streams.d2h));
  STRATA_TRY_ASSIGN(arena_free_, backend.record(streams.d2h));
  return backend.wait_on_async(arena_free_, streams.compute);  // the next pass may overwrite it
}

Status ProgramRunner::read_back_losses(const LoweredProgram& program, std::int32_t first) {
  for (std::int32_t k = 0; k < program.micro_batches; ++k)
    STRATA_TRY(read_back(reinterpret_cast<std::byte*>(memory_.losses() + first + k * n_ranks()),
                         memory_.arena(program.find("loss", k)), sizeof(float)));
  return Status::ok();
}

Status ProgramRunner::compute_gradient(BatchSource& source, double lr, StepReport& report) {
  const Replay& train = *find(ProgramRole::train);
  const StatePlan& plan = context_.plan();
  const std::int32_t grad_accum = plan.options.grad_accum;
  const double loss_scale = machine_.loss_scale().value;
  machine_.activate(*train.schedule);
  STRATA_TRY(machine_.begin(lr));
  const std::int64_t first = machine_.steps() * grad_accum;
  STRATA_TRY_ASSIGN(float divisor, loss_divisor(source, first, grad_accum));
  divisor /= static_cast<float>(loss_scale);  // scales the loss, and with it the gradient
  const LoweredProgram& program = train.program();
  RankProgress* const progress = context_.progress();
  for (std::int32_t pass = 0; pass < plan.passes(); ++pass) {
    const std::int64_t pass_begin = context_.clock().now_ns();
    // Rank r of n computes micro-batches r, r + n, r + 2 n, ...
    const std::int32_t k = pass * program.micro_batches * n_ranks() + plan.options.ranks.rank;
    if (progress != nullptr)
      progress->begin_micro_batch(k + 1, static_cast<std::int32_t>(program.code.size()));
    STRATA_TRY(load_batch(program, source, first + k, divisor));
    STRATA_TRY(
        executor_.run(program, {program.uses, *train.schedule, pass, true, pass + 1 == plan.passes()}));
    STRATA_TRY(read_back_losses(program, k));
    context_.end_phase("queue micro-batch", k, pass_begin);
  }
  const std::int64_t passes_queued = context_.clock().now_ns();
  STRATA_TRY(context_.backend().wait(arena_free_));
  STRATA_TRY(context_.backend().host_access({reinterpret_cast<const std::byte*>(memory_.losses()),
                                             sizeof(float) * static_cast<std::size_t>(grad_accum), false}));
  const std::span<float> losses =
      context_.host_values(memory_.losses(), static_cast<std::size_t>(grad_accum));
  STRATA_TRY(machine_.finish_gradient(report, losses));
  context_.end_phase("wait for gradients", machine_.steps() + 1, passes_queued);
  float sum = 0;
  for (const float loss : losses) sum += loss;
  const auto bad =
      std::find_if(losses.begin(), losses.end(), [](float loss) { return !std::isfinite(loss); });
  bad_loss_ = bad == losses.end() ? -1 : static_cast<std::int32_t>(bad - losses.begin());
  report.loss = sum / static_cast<float>(grad_accum) / static_cast<float>(loss_scale);
  return Status::ok();
}

std::string ProgramRunner::bad_loss_text() const {
  if (bad_loss_ < 0) return {};
  std::string text = str("; the loss of micro-batch ", bad_loss_ + 1, " is not finite");
  if (n_ranks() > 1) text += str(", which rank ", bad_loss_ % n_ranks(), " computes");
  return text;
}

Status ProgramRunner::fail(const Status& why) {
  Status outcome = machine_.fail(why);
  executor_.release();  // the streams are idle now
  return outcome;
}

Status ProgramRunner::refresh(BatchSource& source, const VisitState& sink) {
  const Replay* const replay = find(ProgramRole::refresh);
  if (replay == nullptr) return Status::error(Code::unsupported, "this run has no program for refreshing");
  STRATA_TRY(machine_.flush());
  const Status status = run_refresh(*replay, source, sink);
  return status.is_ok() ? status : fail(status);
}

Status ProgramRunner::run_refresh(const Replay& replay, BatchSource& source, const VisitState& sink) {
  const LoweredProgram& program = replay.program();
  machine_.activate(*replay.schedule);
  const std::int32_t grad_accum = context_.plan().options.grad_accum;
  const std::int64_t first = machine_.steps() * grad_accum;
  STRATA_TRY_ASSIGN(const float divisor, loss_divisor(source, first, grad_accum));
  STRATA_TRY(load_batch(program, source, first, divisor));
  auto next = program.results.begin();
  const auto take_results = [&](std::size_t instr) -> Status {
    for (; next != program.results.end() && next->instr == instr; ++next)
      STRATA_TRY(give_result(*next, sink));
    return Status::ok();
  };
  STRATA_TRY(executor_.run(program, {program.uses, *replay.schedule}, take_results));
  STRATA_TRY_ASSIGN(arena_free_, context_.backend().record(context_.streams().compute));
  return context_.chunks().status();
}

// Waits for a result, whose memory on the device the next instruction may overwrite.
Status ProgramRunner::give_result(const LoweredProgram::ResultValue& result, const VisitState& sink) {
  const std::size_t bytes = result.operand.bytes();
  std::byte* const kept = memory_.result(result);
  STRATA_TRY(read_back(kept, memory_.arena(result.operand), bytes));
  STRATA_TRY(context_.backend().wait(arena_free_));
  STRATA_TRY(context_.backend().host_access({kept, bytes, false}));
  if (!context_.has_data()) return {};
  const std::int64_t n = result.operand.shape.n_elems();
  const auto* const values = reinterpret_cast<const float*>(kept);
  return sink(StatePiece{result.name, 0, n}, {values, static_cast<std::size_t>(n)});
}

Result<double> ProgramRunner::evaluate(std::string_view name, BatchSource& source, std::int64_t n) {
  const Replay* const eval = name.empty() ? find(ProgramRole::eval) : find(name);
  if (eval == nullptr || eval->planned.role != ProgramRole::eval)
    return Status::error(Code::unsupported, name.empty()
                                                ? std::string("this run has no program for evaluation")
                                                : str("this run has no program for evaluation named ", name));
  STRATA_TRY(machine_.flush());
  if (RankProgress* const progress = context_.progress()) progress->outside("evaluating");
  if (n < 1) return 0.0;
  Result<double> mean = mean_loss(*eval, source, n);
  if (!mean.has_value()) return fail(mean.status());
  return mean;
}

Result<double> ProgramRunner::mean_loss(const Replay& eval, BatchSource& source, std::int64_t n) {
  STRATA_TRY_ASSIGN(const float divisor, loss_divisor(source, 0, n));
  double sum = 0;
  const std::int32_t rank = context_.plan().options.ranks.rank;
  for (std::int64_t i = 0; i < n; i += n_ranks()) {
    machine_.activate(*eval.schedule);
    // A rank without a micro-batch of its own computes the last one too, since all ranks run the program.
    STRATA_TRY(load_batch(eval.program(), source, std::min(i + rank, n - 1), divisor));
    STRATA_TRY(run(eval));
    STRATA_TRY(read_back_losses(eval.program(), rank));
    STRATA_TRY(context_.backend().wait(arena_free_));
    STRATA_TRY(context_.backend().host_access({reinterpret_cast<const std::byte*>(memory_.losses()),
                                               sizeof(float) * static_cast<std::size_t>(n_ranks()), false}));
    const std::span<float> losses =
        context_.host_values(memory_.losses(), static_cast<std::size_t>(n_ranks()));
    STRATA_TRY(machine_.share_losses(losses));
    for (std::size_t k = 0; k < losses.size() && i + static_cast<std::int64_t>(k) < n; ++k) sum += losses[k];
  }
  return sum / static_cast<double>(n);
}

// Waits for rows of logits and returns them; valid until the next call.
Result<std::span<const float>> ProgramRunner::read_logits(const Operand& logits, std::int64_t first_row,
                                                          std::size_t rows) {
  const auto vocab = static_cast<std::size_t>(logits.shape.dim(-1));
  const std::size_t bytes = rows * vocab * sizeof(float);
  STRATA_TRY(read_back(reinterpret_cast<std::byte*>(memory_.logits()),
                       memory_.arena(logits) + static_cast<std::size_t>(first_row) * vocab * sizeof(float),
                       bytes));
  STRATA_TRY(context_.backend().wait(arena_free_));
  STRATA_TRY(
      context_.backend().host_access({reinterpret_cast<const std::byte*>(memory_.logits()), bytes, false}));
  return std::span<const float>(memory_.logits(), rows * vocab);
}

Result<std::span<const float>> ProgramRunner::infer(std::span<const std::int32_t> tokens, std::int64_t row) {
  const Replay* const replay = find(ProgramRole::infer);
  if (replay == nullptr) return Status::error(Code::unsupported, "this run has no program for inference");
  const Operand input = replay->program().find("tokens");
  STRATA_TRY(machine_.flush());
  if (static_cast<std::int64_t>(tokens.size()) != input.shape.n_elems() || row < 0 ||
      row >= input.shape.n_elems())
    return Status::error(Code::invalid,
                         str("inference needs ", input.shape.n_elems(),
                             " tokens and the row of one of them; given ", tokens.size(), " and row ", row));
  Result<std::span<const float>> logits = infer_row(*replay, tokens, row);
  if (!logits.has_value()) return fail(logits.status());
  return logits;
}

Result<std::span<const float>> ProgramRunner::infer_row(const Replay& replay,
                                                        std::span<const std::int32_t> tokens,
                                                        std::int64_t row) {
  const LoweredProgram& program = replay.program();
  machine_.activate(*replay.schedule);
  STRATA_TRY_ASSIGN(const BatchView batch, open_inputs(program, 0));
  const std::span<std::int32_t> into = batch["tokens"];
  std::copy_n(tokens.begin(), into.size(), into.begin());
  STRATA_TRY(upload(program));
  STRATA_TRY(run(replay));
  return read_logits(program.find("logits"), row, 1);
}

Result<std::span<const float>> ProgramRunner::extend(std::span<const SequenceToken> tokens,
                                                     std::span<const std::int32_t> wanted) {
  if (find(ProgramRole::decode) == nullptr)
    return Status::error(Code::unsupported, "this run has no programs that continue sequences");
  STRATA_TRY(machine_.flush());
  STRATA_TRY(kv_cache_.check(tokens, wanted));
  const Replay& replay =
      *find(kv_cache_.fits_decode(tokens, wanted) ? ProgramRole::decode : ProgramRole::prefill);
  Result<std::span<const float>> logits = run_extension(replay, tokens, wanted);
  if (!logits.has_value()) return fail(logits.status());
  kv_cache_.advance();
  return logits;
}

Result<std::span<const float>> ProgramRunner::run_extension(const Replay& replay,
                                                            std::span<const SequenceToken> tokens,
                                                            std::span<const std::int32_t> wanted) {
  const LoweredProgram& program = replay.program();
  machine_.activate(*replay.schedule);
  STRATA_TRY_ASSIGN(const BatchView batch, open_inputs(program, 0));
  KvCacheTracker::write(batch, tokens, wanted);
  STRATA_TRY(upload(program));
  STRATA_TRY(run(replay));
  if (wanted.empty()) {  // more tokens follow, so no logits are read and nothing is waited for
    STRATA_TRY_ASSIGN(arena_free_, context_.backend().record(context_.streams().compute));
    return std::span<const float>();
  }
  return read_logits(program.find("logits"), 0, wanted.size());
}

}  // namespace strata::detail
