#include <strata/engine/engine.h>

#include <algorithm>
#include <cmath>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>
#include <strata/offload/sim_store.h>
#include <strata/parallel/compare_ranks.h>
#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>

#include "execute/subspaces/factor_merge.h"
#include "execute/subspaces/found_bases.h"
#include "execute/initial_fill.h"
#include "execute/program_collectives.h"
#include "execute/program_runner.h"
#include "plan/cost_model.h"

namespace strata {
namespace {

// The groups of the programs' collectives.
Status prepare_collectives(const RunPlan& plan, StateContext& context) {
  if (context.model_groups() == nullptr) return {};
  for (const PlannedProgram& planned : plan.programs)
    for (const LoweredInstr& instr : planned.program.code)
      if (is_collective(instr.op))
        STRATA_TRY(
            detail::prepare_collective(*context.model_groups(), instr.op, instr.attrs.as<CollectiveAttrs>()));
  return {};
}

// Ranks that share a model must run its collectives in one order, or they wait for each other.
Status check_collectives_agree(const RunPlan& plan, StateContext& context) {
  if (context.world() == nullptr || context.model_groups() == nullptr) return {};
  RankFacet facet{"collectives of the model", {}, plan.options.model.place(MeshAxis::pp)};
  for (const PlannedProgram& planned : plan.programs) {
    for (const LoweredInstr& instr : planned.program.code)
      if (is_collective(instr.op))
        facet.lines.push_back(str(op_name(instr.op), " along ",
                                  to_string(static_cast<MeshAxis>(instr.attrs.as<CollectiveAttrs>().axis)),
                                  " in ", planned.name));
  }
  return compare_ranks(*context.world(), {&facet, 1});
}

// The largest number of parameter chunks that an instruction reads.
std::size_t max_params(const RunPlan& plan) {
  std::size_t max = 0;
  for (const PlannedProgram& planned : plan.programs)
    for (const UseTrace::Position& position : planned.program.uses.positions)
      max = std::max(max, position.params.size());
  return max;
}

Result<StorePtr<ObjectStore>> open_nvme_store(Io& io, const NvmeOptions& options) {
  if (options.classes.empty()) return StorePtr<ObjectStore>();
  STRATA_TRY_ASSIGN(StorePtr<NvmeStore> store, NvmeStore::create(io, options));
  return StorePtr<ObjectStore>(std::move(store));
}

// The passes of a step of each trainee; of a run that trains nothing a pass without uses.
std::vector<PassSchedule> step_schedules(const RunPlan& plan) {
  static const UseTrace kNothing;
  std::vector<PassSchedule> schedules;
  for (std::size_t t = 0; t < plan.steps.size(); ++t) {
    std::vector<PassRepeat> repeats;
    for (const PlannedStep::Part& part : plan.steps[t].parts)
      repeats.push_back({&plan.programs[part.program].program.uses, part.passes});
    schedules.push_back(make_schedule(repeats, plan, commit_timing(plan), static_cast<std::int32_t>(t)));
  }
  if (schedules.empty())
    schedules.push_back(make_schedule(PassRepeat{&kNothing, plan.passes()}, plan, commit_timing(plan)));
  return schedules;
}

NetworkRates network_rates(const MachineProfile& profile, bool threads) {
  const auto [bytes_per_s, latency_s] = profile.network(threads);
  return {.between = {bytes_per_s, latency_s},
          .within = {profile.node_bytes_per_s, profile.node_latency_s},
          .node_ranks = static_cast<int>(profile.node_ranks)};
}

SessionEnvironment session_environment(const RunPlan& plan, const Engine::Environment& of,
                                       const StateCosts* costs) {
  SessionEnvironment session{of.backend, of.pool, of.clock};
  session.trace = of.trace;
  session.budgets = of.budgets;
  session.costs = costs;
  session.world = of.world;
  session.network = {.between = of.network};
  if (of.dataless == nullptr) {
    session.open_store = [&io = of.io](const NvmeOptions& options) { return open_nvme_store(io, options); };
    return session;
  }
  session.synthetic = of.dataless->steps;
  session.peers = of.dataless->peers;
  if (const MachineProfile* const profile = of.dataless->profile)
    session.network = network_rates(*profile, plan.options.ranks.threads);
  if (Simulation* const simulation = of.dataless->simulation)
    session.open_store = [simulation](const NvmeOptions&) {
      return Result<StorePtr<ObjectStore>>(StorePtr<ObjectStore>(new SimStore(*simulation)));
    };
  return session;
}

}  // namespace

Engine::Engine(const RunPlan& plan, std::unique_ptr<detail::CostModel> costs,
               std::unique_ptr<StateContext> context)
    : Session(std::move(context), strata::step_schedules(plan), max_params(plan)),
      plan_(plan),
      costs_(std::move(costs)),
      runner_(std::make_unique<detail::ProgramRunner>(this->context(), machine(), plan,
                                                      Session::step_schedules(), costs_.get())) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::create(const RunPlan& plan, const Environment& environment) {
  std::unique_ptr<detail::CostModel> costs;
  if (environment.dataless != nullptr && environment.dataless->profile != nullptr)
    costs = std::make_unique<detail::CostModel>(plan, *environment.dataless->profile);
  STRATA_TRY_ASSIGN(std::unique_ptr<StateContext> context,
                    StateContext::create(plan, session_environment(plan, environment, costs.get())));
  STRATA_TRY(prepare_collectives(plan, *context));
  std::unique_ptr<Engine> engine(new Engine(plan, std::move(costs), std::move(context)));
  STRATA_TRY(engine->check_ranks_agree());
  STRATA_TRY(check_collectives_agree(plan, engine->context()));
  return engine;
}

FillState Engine::initial_values(std::uint64_t seed, const InitialValues& given,
                                 const QuantizedValues& quantized) {
  return [fill = std::make_shared<detail::InitialFill>(plan_, context().pool(), seed, given, quantized)](
             const StatePiece& piece, std::span<float> values) { return fill->fill(piece, values); };
}

Status Engine::initialize(std::uint64_t seed, const InitialValues& given, const QuantizedValues& quantized) {
  return reset(initial_values(seed, given, quantized));
}

// Computes the gradient, again at smaller loss scales after an overflow, and commits it.
Status Engine::run_step(const detail::TraineeStep& step, StepReport& report) {
  LossScale& loss_scale = machine().loss_scale(step.trainee);
  const LossScale scale_before = loss_scale;
  const double lr = step.lr;
  STRATA_TRY(runner_->compute_gradient(step, report));
  for (; !std::isfinite(report.grad_norm) && loss_scale.back_off(); ++report.overflow_retries) {
    STRATA_TRY(machine().undo(report));
    STRATA_TRY(runner_->compute_gradient(step, report));
  }
  const std::int64_t norm_known = context().clock().now_ns();
  report.skipped = !std::isfinite(report.grad_norm);
  if (!report.skipped) {
    STRATA_TRY(machine().commit(lr, report));
  } else {
    const Status found = machine().non_finite_error();
    const Status why = Status::error(found.code(), str(found.message(), runner_->bad_loss_text()));
    if (plan_.options.non_finite == NonFinite::stop)
      return Status::error(why.code(), str(why.message(), "; optim.non_finite=skip skips such steps"));
    report.skip_reason = why.message();
    loss_scale = scale_before;  // no scale would have helped
    STRATA_TRY(machine().undo(report));
    machine().skip();
  }
  report.loss_scale = loss_scale.value;
  if (plan_.scales_loss() && !report.skipped) loss_scale.step_done();
  context().end_phase("commit", steps(step.trainee), norm_known);
  return Status::ok();
}

Status Engine::train_step(BatchSource& source, double lr, StepReport& report) {
  BatchSource* const only = &source;
  return train_step({}, {&only, 1}, lr, report);
}

Result<std::int32_t> Engine::find_trainee(std::string_view name, std::size_t n_sources) const {
  if (plan_.steps.empty()) return Status::error(Code::unsupported, "this run has no program for training");
  const std::int32_t trainee = plan_.trainee(name);
  if (trainee < 0) return Status::error(Code::invalid, str("this run has no trainee named ", name));
  const PlannedStep& step = plan_.steps[static_cast<std::size_t>(trainee)];
  if (n_sources == step.parts.size()) return trainee;
  return Status::error(Code::invalid, str("a step of trainee '", step.trainee, "' needs ",
                                          plural(step.parts.size(), "batch source"), ", one for each of its ",
                                          "programs; given ", n_sources));
}

Status Engine::train_step(std::string_view trainee, std::span<BatchSource* const> sources, double lr,
                          StepReport& report) {
  STRATA_TRY_ASSIGN(const std::int32_t number, find_trainee(trainee, sources.size()));
  STRATA_TRY(machine().broken());
  StallMeter* const meter = context().backend().stall_meter();
  const auto stall_times = [&] { return meter == nullptr ? StallTimes{} : meter->times(); };
  const std::int64_t begin = context().clock().now_ns();
  const StallTimes before = stall_times();
  report.overflow_retries = report.speculated = report.rolled_back = 0;
  report.skipped = false;
  report.skip_reason.clear();
  report.clip_factor = 1;
  RankProgress* const progress = context().progress();
  if (progress != nullptr) progress->begin_step(steps(number) + 1);
  if (const Status status = run_step({number, sources, lr}, report); !status.is_ok()) {
    // All ranks find that a gradient is not finite or a rank is lost, but any other error is this rank's
    // alone.
    if (World* const ranks = world();
        ranks != nullptr && status.code() != Code::diverged && status.code() != Code::lost_peer)
      ranks->give_up(status);
    return runner_->fail(status);
  }
  if (progress != nullptr) progress->outside("between steps");
  report.seconds = static_cast<double>(context().clock().now_ns() - begin) * 1e-9;
  report.times = stall_times() - before;
  machine().record_step(report.seconds);
  return Status::ok();
}

Result<double> Engine::evaluate(BatchSource& source, std::int64_t n, std::string_view program,
                                const std::function<void(std::int64_t)>& after) {
  return runner_->evaluate(program, source, n, after);
}
std::span<const float> Engine::output(std::string_view program, std::string_view name,
                                      std::int32_t micro_batch) const {
  return runner_->output(program, name, micro_batch);
}
std::span<const double> Engine::step_sum(std::string_view output) const noexcept {
  return runner_->step_sum(output);
}
std::span<const std::size_t> Engine::arena_used() const noexcept { return runner_->arena_used(); }
Status Engine::expect(std::span<const std::string_view> programs) { return runner_->expect(programs); }
Status Engine::forward(std::string_view program, BatchSource& source, std::int64_t index) {
  STRATA_TRY(machine().broken());
  return runner_->forward(program, source, index);
}
Status Engine::refresh(BatchSource& source, const VisitState& sink) {
  STRATA_TRY(machine().broken());
  return runner_->refresh(source, sink);
}

// Reads the factors of the groups whose matrices are in one chunk, and then changes these matrices.
Status Engine::merge_chunk(detail::FactorMerge& merge) {
  STRATA_TRY(visit_tensors(Payload::param, merge.factors(), merge.reader()));
  merge.drop_zeros();
  STRATA_TRY(edit_params(merge.matrices(), merge.editor(context().pool())));
  return {};
}

Status Engine::merge_factors(std::span<const LoraGroup> groups) {
  STRATA_TRY_ASSIGN(std::vector<detail::FactorMerge> merges, detail::merges_by_chunk(plan_, groups));
  std::vector<std::string> merged;
  Status status;
  for (detail::FactorMerge& merge : merges) {
    status = merge_chunk(merge);
    if (!status.is_ok()) break;
    for (std::string& factor : merge.trained()) merged.push_back(std::move(factor));
    merge = {};  // its factors take memory
  }
  const FillState zeros = [](const StatePiece&, std::span<float> values) {
    std::fill(values.begin(), values.end(), 0.0f);
    return Status::ok();
  };
  if (status.is_ok()) status = edit_params(merged, zeros);
  // Matrices that have their product beside factors that are not zero are those of no step.
  if (!status.is_ok() && !merged.empty() && machine().broken().is_ok())
    machine().set_broken(status.annotate(
        "merging factors was interrupted, so the states do not belong to any step; load a checkpoint"));
  return machine().broken().is_ok() ? status : machine().broken();
}

Result<std::vector<Engine::RenewedBasis>> Engine::renew_bases(BatchSource& source,
                                                              std::span<const LoraGroup> groups) {
  detail::FoundBases found(plan_, groups);
  STRATA_TRY(found.check());
  STRATA_TRY(merge_factors(groups));
  STRATA_TRY(refresh(source, found.sink()));
  STRATA_TRY(found.check_finite());
  STRATA_TRY(edit_params(found.names(), found.editor()));
  std::vector<RenewedBasis> renewed;
  for (const LoraGroup& group : groups)
    renewed.push_back({group.basis(), found.energy(group), found.is_kept(group)});
  return renewed;
}

Result<std::span<const float>> Engine::infer(std::span<const std::int32_t> tokens, std::int64_t row) {
  return runner_->infer(tokens, row);
}
Status Engine::keep_snapshot(std::int32_t slot) { return runner_->keep_snapshot(slot); }
bool Engine::keeps_snapshots() const noexcept { return runner_->keeps_snapshots(); }
std::int32_t Engine::continues_from(std::int32_t slot, std::int32_t position) const noexcept {
  return runner_->continues_from(slot, position);
}

Result<std::span<const float>> Engine::extend(std::span<const SequenceToken> tokens,
                                              std::span<const std::int32_t> wanted) {
  return runner_->extend(tokens, wanted);
}

}  // namespace strata
