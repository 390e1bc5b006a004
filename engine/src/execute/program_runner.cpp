#include "execute/program_runner.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <strata/runtime/str.h>

namespace strata::detail {

ProgramRunner::ProgramRunner(StateContext& context, StepMachine& machine, const RunPlan& plan,
                             std::span<const PassSchedule> steps, const InstructionCosts* costs)
    : context_(context),
      machine_(machine),
      plan_(plan),
      memory_(plan, context.memory()),
      executor_(context, machine, memory_, plan, costs),
      kv_cache_(plan),
      sums_(plan) {
  std::size_t max_inputs = 0;
  replays_.reserve(plan.programs.size());
  for (const PlannedProgram& planned : plan.programs) {
    replays_.push_back({planned, PassSchedule(), nullptr});
    Replay& replay = replays_.back();
    replay.overwrites_cache = overwrites_cache(plan, planned);
    if (planned.role != ProgramRole::train) {
      replay.own = make_schedule(PassRepeat{&planned.program.uses, 1}, plan, CommitTiming::never);
      replay.schedule = &replay.own;
    }
    max_inputs = std::max(max_inputs, planned.program.bindings.size());
  }
  inputs_.reserve(max_inputs);
  for (std::size_t t = 0; t < plan.steps.size(); ++t) {
    std::size_t end = 0;
    for (const PlannedStep::Part& part : plan.steps[t].parts) {
      replays_[part.program].schedule = &steps[t];
      replays_[part.program].first_output = end;
      end += static_cast<std::size_t>(part.passes) * plan.programs[part.program].program.output_bytes;
    }
  }
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

Status ProgramRunner::expect(std::span<const std::string_view> programs) {
  std::array<const FirstUses*, 16> following{};
  std::size_t n = 0;
  for (const std::string_view name : programs.first(std::min(programs.size(), following.size()))) {
    const auto found = std::find_if(replays_.begin(), replays_.end(),
                                    [&](const Replay& replay) { return replay.planned.name == name; });
    if (found == replays_.end())
      return Status::error(Code::unsupported, str("this run has no program named ", name));
    if (found->first_uses == nullptr)
      found->first_uses = std::make_unique<FirstUses>(context_.plan().layout.n_chunks(),
                                                      found->schedule->uses, found->schedule->cycle);
    following[n++] = found->first_uses.get();
  }
  context_.use_schedule().set_following(std::span(following).first(n));
  return {};
}

void ProgramRunner::activate(const Replay& replay) {
  machine_.activate(*replay.schedule);
  if (replay.overwrites_cache) kv_cache_.forget();
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
                                 const LossScaling& scaling) {
  for (std::int32_t k = 0; k < program.micro_batches; ++k) {
    STRATA_TRY_ASSIGN(const BatchView batch, open_inputs(program, k));
    const HostWaitScope waits(context_.backend().stall_meter(), StallCause::data);
    const RankProgress::UserCode in_source(context_.progress(), "the batch source");
    STRATA_TRY(source.fill(index + std::int64_t{k} * n_ranks(), batch));
    const auto fill = [&](const char* name, float value) {
      if (const std::span<std::int32_t> into = batch[name]; !into.empty())
        std::memcpy(into.data(), &value, sizeof value);
    };
    fill("divisor", scaling.divisor);
    fill("loss_factor", scaling.factor);
  }
  return upload(program);
}

// Counted targets per micro-batch: if each of `n` divides its sum of losses by it, the mean of the results is
// the mean over all counted targets.
Result<double> ProgramRunner::counted_per(BatchSource& source, std::int64_t index, std::int64_t n) {
  std::int64_t counted = 0;
  {
    const RankProgress::UserCode in_source(context_.progress(), "the batch source");
    counted = source.n_counted(index, n);
  }
  if (counted < 0)
    return Status::error(Code::invalid, str("the batch source reports ", counted,
                                            " counted targets; there must be at least 0"));
  return static_cast<double>(counted) / static_cast<double>(n);
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

Status ProgramRunner::await_read_back(const void* at, std::size_t bytes) {
  STRATA_TRY(context_.backend().wait(arena_free_));
  return context_.backend().host_access({static_cast<const std::byte*>(at), bytes, false});
}

// All outputs of a pass that are not read back otherwise, to byte `at` of their memory.
Status ProgramRunner::read_back_outputs(const LoweredProgram& program, std::size_t at) {
  for (const LoweredProgram::Binding& binding : program.bindings)
    if (!binding.is_input && binding.name != "loss" && binding.name != "logits")
      STRATA_TRY(read_back(memory_.outputs() + at + binding.slot_offset, memory_.arena(binding.operand),
                           binding.operand.bytes()));
  return {};
}

Status ProgramRunner::read_back_losses(const LoweredProgram& program, std::int32_t first) {
  for (std::int32_t k = 0; k < program.micro_batches; ++k)
    STRATA_TRY(read_back(reinterpret_cast<std::byte*>(memory_.losses() + first + k * n_ranks()),
                         memory_.arena(program.find("loss", k)), sizeof(float)));
  return Status::ok();
}

// How many passes of a step's program have only micro-batches without a target.
Result<std::int32_t> ProgramRunner::passes_left_out(BatchSource& source, std::int64_t first,
                                                    const PlannedStep::Part& part) {
  std::int64_t empty = 0;
  {
    const RankProgress::UserCode in_source(context_.progress(), "the batch source");
    empty = source.n_empty(first, part.micro_batches);
  }
  if (empty < 0 || empty >= part.micro_batches)
    return Status::error(Code::invalid, str("the batch source reports ", empty, " empty micro-batches of ",
                                            part.micro_batches, "; there must be at least 0 and one fewer"));
  return static_cast<std::int32_t>(empty / (part.micro_batches / part.passes));
}

// A micro-batch without a target runs or does not by the number of ranks, so none of these counts.
Status ProgramRunner::sum_outputs(const TraineeStep& step) {
  sums_.clear();
  const PlannedStep& planned = plan_.steps[static_cast<std::size_t>(step.trainee)];
  for (std::size_t number = 0; number < planned.parts.size(); ++number) {
    const PlannedStep::Part& part = planned.parts[number];
    if (!sums_.sums(part.program) || !context_.has_data()) continue;
    const Replay& replay = replays_[part.program];
    const std::int32_t together = replay.program().micro_batches;
    const std::int64_t empty =
        step.sources[number]->n_empty(machine_.steps(step.trainee) * part.micro_batches, part.micro_batches);
    for (std::int32_t k = 0; k < part.passes * together; ++k) {
      if (std::int64_t{k} * n_ranks() + plan_.options.ranks.rank < empty) continue;
      const std::byte* const at = outputs_of(replay, k / together);
      STRATA_TRY(context_.backend().host_access({at, replay.program().output_bytes, false}));
      sums_.add(part.program, k % together, at);
    }
  }
  return {};
}

// Runs the passes of one of a step's programs. Their losses follow those of the programs before it.
Status ProgramRunner::run_part(const TraineeStep& step, std::size_t number, std::int32_t first_loss) {
  const PlannedStep& planned = plan_.steps[static_cast<std::size_t>(step.trainee)];
  const PlannedStep::Part& part = planned.parts[number];
  const Replay& replay = replays_[part.program];
  const LoweredProgram& program = replay.program();
  BatchSource& source = *step.sources[number];
  const std::int64_t first = machine_.steps(step.trainee) * part.micro_batches;
  STRATA_TRY_ASSIGN(const double counted, counted_per(source, first, part.micro_batches));
  // The gradient is divided by all of the step's micro-batches. The divisor scales the loss, and with it the
  // gradient.
  const double share = static_cast<double>(part.micro_batches) / planned.micro_batches();
  auto divisor = static_cast<float>(counted);
  if (share != 1 || part.weight != 1) divisor = static_cast<float>(counted * share / part.weight);
  const auto loss_scale = static_cast<float>(machine_.loss_scale(step.trainee).value);
  const LossScaling scaling = {divisor / loss_scale, static_cast<float>(part.weight / share) * loss_scale};
  STRATA_TRY_ASSIGN(const std::int32_t left_out, passes_left_out(source, first, part));
  if (left_out > 0 && context_.has_data())
    std::fill_n(memory_.losses() + first_loss, part.micro_batches, 0.0f);
  RankProgress* const progress = context_.progress();
  for (std::int32_t pass = left_out; pass < part.passes; ++pass) {
    const std::int64_t pass_begin = context_.clock().now_ns();
    // Rank r of n computes micro-batches r, r + n, r + 2 n, ...
    const std::int32_t k = pass * program.micro_batches * n_ranks() + plan_.options.ranks.rank;
    if (progress != nullptr)
      progress->begin_micro_batch(k + 1, static_cast<std::int32_t>(program.code.size()));
    STRATA_TRY(load_batch(program, source, first + k, scaling));
    STRATA_TRY(executor_.run(program, {program.uses, *replay.schedule, true, number, pass, left_out}));
    STRATA_TRY(read_back_losses(program, first_loss + k));
    STRATA_TRY(read_back_outputs(
        program, replay.first_output + static_cast<std::size_t>(pass) * program.output_bytes));
    context_.end_phase("queue micro-batch", first_loss + k, pass_begin);
  }
  return {};
}

Status ProgramRunner::compute_gradient(const TraineeStep& step, StepReport& report) {
  const PlannedStep& planned = plan_.steps[static_cast<std::size_t>(step.trainee)];
  activate(replays_[planned.parts.front().program]);
  for (const PlannedStep::Part& part : planned.parts)
    if (replays_[part.program].overwrites_cache) kv_cache_.forget();
  STRATA_TRY(machine_.begin(step.lr, step.trainee));
  std::int32_t n_losses = 0;
  for (std::size_t part = 0; part < planned.parts.size(); n_losses += planned.parts[part++].micro_batches)
    STRATA_TRY(run_part(step, part, n_losses));
  const std::int64_t passes_queued = context_.clock().now_ns();
  const auto n = static_cast<std::size_t>(n_losses);
  STRATA_TRY(await_read_back(memory_.losses(), sizeof(float) * n));
  const std::span<float> losses = context_.host_values(memory_.losses(), n);
  STRATA_TRY(sum_outputs(step));
  STRATA_TRY(machine_.finish_gradient(report, losses, sums_.all()));
  context_.end_phase("wait for gradients", machine_.steps(step.trainee) + 1, passes_queued);
  const auto bad =
      std::find_if(losses.begin(), losses.end(), [](float loss) { return !std::isfinite(loss); });
  bad_loss_ = bad == losses.end() ? -1 : static_cast<std::int32_t>(bad - losses.begin());
  float sum = 0;
  for (const float loss : losses) sum += loss;
  report.loss =
      sum / static_cast<float>(n_losses) / static_cast<float>(machine_.loss_scale(step.trainee).value);
  return Status::ok();
}

Status ProgramRunner::forward(std::string_view name, BatchSource& source, std::int64_t index) {
  const Replay* const replay = find(name);
  if (replay == nullptr || replay->planned.role != ProgramRole::forward)
    return Status::error(Code::unsupported,
                         str("this run has no program with the role forward named ", name));
  const Status status = run_forward(*replay, source, index);
  return status.is_ok() ? status : fail(status);
}

Status ProgramRunner::run_forward(const Replay& replay, BatchSource& source, std::int64_t index) {
  const LoweredProgram& program = replay.program();
  activate(replay);
  STRATA_TRY(load_batch(program, source, index, {}));
  STRATA_TRY(run(replay));
  STRATA_TRY(read_back_outputs(program, 0));
  return await_read_back(memory_.outputs(), program.output_bytes);
}

std::span<const float> ProgramRunner::output(std::string_view name, std::string_view output,
                                             std::int32_t micro_batch) const noexcept {
  const Replay* const replay = find(name);
  if (replay == nullptr || !context_.has_data() || output == "loss" || output == "logits") return {};
  const LoweredProgram& program = replay->program();
  for (const LoweredProgram::Binding& binding : program.bindings)
    if (!binding.is_input && binding.name == output &&
        binding.micro_batch == micro_batch % program.micro_batches) {
      const std::byte* const at = outputs_of(*replay, micro_batch / program.micro_batches);
      return {reinterpret_cast<const float*>(at + binding.slot_offset),
              static_cast<std::size_t>(binding.operand.shape.n_elems())};
    }
  return {};
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
  activate(replay);
  const std::int32_t grad_accum = context_.plan().options.grad_accum;
  const std::int64_t first = machine_.steps() * grad_accum;
  STRATA_TRY_ASSIGN(const double counted, counted_per(source, first, grad_accum));
  STRATA_TRY(load_batch(program, source, first, {static_cast<float>(counted)}));
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

Result<double> ProgramRunner::evaluate(std::string_view name, BatchSource& source, std::int64_t n,
                                       const std::function<void(std::int64_t)>& after) {
  const Replay* const eval = name.empty() ? find(ProgramRole::eval) : find(name);
  if (eval == nullptr || eval->planned.role != ProgramRole::eval)
    return Status::error(Code::unsupported, name.empty()
                                                ? std::string("this run has no program for evaluation")
                                                : str("this run has no program for evaluation named ", name));
  STRATA_TRY(machine_.broken());
  if (RankProgress* const progress = context_.progress()) progress->outside("evaluating");
  if (n < 1) return 0.0;
  Result<double> mean = mean_loss(*eval, source, n, after);
  if (!mean.has_value()) return fail(mean.status());
  return mean;
}

Result<double> ProgramRunner::mean_loss(const Replay& eval, BatchSource& source, std::int64_t n,
                                        const std::function<void(std::int64_t)>& after) {
  STRATA_TRY_ASSIGN(const double counted, counted_per(source, 0, n));
  const auto divisor = static_cast<float>(counted);
  double sum = 0;
  const std::int32_t rank = context_.plan().options.ranks.rank;
  for (std::int64_t i = 0; i < n; i += n_ranks()) {
    activate(eval);
    // A rank without a micro-batch of its own computes the last one too, since all ranks run the program.
    STRATA_TRY(load_batch(eval.program(), source, std::min(i + rank, n - 1), {divisor}));
    STRATA_TRY(run(eval));
    STRATA_TRY(read_back_losses(eval.program(), rank));
    STRATA_TRY(read_back_outputs(eval.program(), 0));
    STRATA_TRY(context_.backend().wait(arena_free_));
    STRATA_TRY(context_.backend().host_access({reinterpret_cast<const std::byte*>(memory_.losses()),
                                               sizeof(float) * static_cast<std::size_t>(n_ranks()), false}));
    const std::span<float> losses =
        context_.host_values(memory_.losses(), static_cast<std::size_t>(n_ranks()));
    if (after && i + rank < n) after(i + rank);
    STRATA_TRY(machine_.share_losses(losses));
    for (std::size_t k = 0; k < losses.size() && i + static_cast<std::int64_t>(k) < n; ++k) sum += losses[k];
  }
  return sum / static_cast<double>(n);
}

}  // namespace strata::detail
