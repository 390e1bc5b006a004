#include "plan/planning.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>
#include <strata/session/loss_scale.h>
#include <strata/session/state_planning.h>
#include <strata/session/undo_log_plan.h>

#include "execute/program_memory.h"

namespace strata::detail {
namespace {

// The programs that exist, in the order of their roles. The first one represents the model.
std::vector<const NamedProgram*> present(const ProgramSet& programs) {
  constexpr std::array kOrder = {ProgramRole::train, ProgramRole::eval, ProgramRole::infer,
                                 ProgramRole::prefill, ProgramRole::decode};
  std::vector<const NamedProgram*> found;
  for (const ProgramRole role : kOrder)
    for (const NamedProgram& program : programs.list())
      if (program.role == role && !program.program.code.empty()) found.push_back(&program);
  return found;
}

bool trains(std::span<const NamedProgram* const> programs) {
  return !programs.empty() && programs.front()->role == ProgramRole::train;
}

Status check_train(const Program& train, const SessionOptions& options) {
  if (train.micro_batches != 1 && train.micro_batches != options.grad_accum)
    return Status::error(Code::invalid,
                         str("the training program covers ", plural(train.micro_batches, "micro-batch"),
                             ", but a step has ", options.grad_accum, "; it must cover one or all of them"));
  for (const ParamInfo& param : train.params)
    if (param.trainable && param.grad == kNoValue)
      return Status::error(Code::invalid,
                           str("the training program has no gradient of parameter ", param.name));
  return cpuopt::validate(options.optimizer);
}

// In f16 the loss is scaled through its divisor, which the engine fills.
Status check_loss_scale(const Program* train, const SessionOptions& options) {
  if (!LossScale::is_valid(options.loss_scale))
    return Status::error(Code::invalid, str("optim.loss_scale is ", options.loss_scale,
                                            "; it must be a power of two from 1 to ", LossScale::kMax));
  if (train == nullptr || train->value(train->params.front().value).dtype != DType::f16) return {};
  if (train->find("divisor") != kNoValue) return {};
  return Status::error(Code::unsupported,
                       "the training program computes in f16 and has no input divisor to scale its loss by");
}

// Prefill and decode share the cache, so their states must be equal.
Status check_states(const NamedProgram* prefill, const NamedProgram* decode) {
  const auto list = [](const NamedProgram* named) {
    std::string text;
    if (named != nullptr)
      for (const ValueId id : named->program.states)
        text += str(" ", named->program.value(id).name, to_string(named->program.value(id).shape));
    return text;
  };
  const std::string a = list(prefill), b = list(decode);
  if ((prefill == nullptr) != (decode == nullptr))
    return Status::error(Code::invalid, "the programs prefill and decode must be given together");
  if (a != b)
    return Status::error(Code::invalid,
                         str("prefill and decode must have equal states: prefill has", a, ", decode has", b));
  return Status::ok();
}

Status check_names(std::span<const NamedProgram* const> programs) {
  if (programs.empty()) return Status::error(Code::invalid, "the run has no program");
  for (std::size_t i = 0; i < programs.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      if (programs[i]->name == programs[j]->name)
        return Status::error(Code::invalid, str("two programs of the run are named ", programs[i]->name));
      if (programs[i]->role == ProgramRole::train && programs[j]->role == ProgramRole::train)
        return Status::error(Code::invalid,
                             str("the programs ", programs[j]->name, " and ", programs[i]->name,
                                 " both train; a run has at most one such program"));
    }
  return {};
}

Status check_inputs(std::span<const NamedProgram* const> programs) {
  for (const NamedProgram* named : programs)
    for (const ValueId id : named->program.inputs)
      if (const ValueInfo& input = named->program.value(id); size_of(input.dtype) != 4)
        return Status::error(Code::invalid, str("input ", input.name, " of program ", named->name, " is ",
                                                to_string(input.dtype), "; inputs have 4 bytes per element"));
  return {};
}

Status check_programs(const ProgramSet& set, std::span<const NamedProgram* const> programs,
                      const SessionOptions& options) {
  STRATA_TRY(check_names(programs));
  STRATA_TRY(check_inputs(programs));
  const Program* const train = trains(programs) ? &programs.front()->program : nullptr;
  if (train != nullptr) STRATA_TRY(check_train(*train, options));
  STRATA_TRY(check_loss_scale(train, options));
  return check_states(set.find(ProgramRole::prefill), set.find(ProgramRole::decode));
}

// The size of the model's activations on the device, by the program that represents it.
std::size_t arena_of(const ProgramSet& set) {
  const std::vector<const NamedProgram*> programs = present(set);
  if (programs.empty()) return 0;
  // Of the programs that continue sequences, the one for few tokens.
  const bool continues = programs.front()->role == ProgramRole::prefill;
  const NamedProgram& model = continues ? *programs.back() : *programs.front();
  return model.memory != nullptr ? model.memory->arena_bytes : plan_memory(model.program).arena_bytes;
}

// The accesses of all programs, one after the other, as the planner sees them.
void describe_accesses(RunPlan& plan) {
  const LoweredProgram& train = plan.of(ProgramRole::train);
  plan.trace = access_trace(train.uses, plan.options.grad_accum / train.micro_batches, plan.trains());
  for (const PlannedProgram& other : plan.programs) {
    if (other.role == ProgramRole::train) continue;
    const AccessTrace trace = access_trace(other.program.uses, 1, false);
    plan.trace.accesses.insert(plan.trace.accesses.end(), trace.accesses.begin(), trace.accesses.end());
  }
}

void note_offloaded_activations(RunPlan& plan) {
  const LoweredProgram::Offload& away = plan.of(ProgramRole::train).offload;
  if (away.n == 0) return;
  plan.notes.push_back(str("activations: ", away.n, " of ", format_bytes(away.bytes),
                           " are offloaded in forward and fetched in backward, which takes at most ",
                           format_bytes(away.host_bytes), " of pinned memory",
                           away.stored.empty()
                               ? std::string()
                               : str(" and ", format_bytes(plan.trace.nvme_fixed_bytes), " of nvme")));
}

// Does everything except the placement, for checked options. The search for a chunk size considers sizes up
// to `max_chunk_elems`; 0: no limit.
Result<std::unique_ptr<RunPlan>> lay_out(const ProgramSet& set, const SessionOptions& options,
                                         std::int64_t max_chunk_elems) {
  const std::vector<const NamedProgram*> programs = present(set);
  STRATA_TRY(check_programs(set, programs, options));
  auto plan = std::make_unique<RunPlan>();
  plan->options = options;
  plan->trace.training = trains(programs);
  STRATA_TRY_ASSIGN(ParameterUnion parameters, unite_parameters(programs));
  plan->tensors = std::move(parameters.tensors);
  plan->init_of_tensor = std::move(parameters.inits);
  STRATA_TRY(lay_out_states(*plan, max_chunk_elems));
  for (const NamedProgram* named : programs)
    plan->programs.push_back(
        {named->name, named->role, lower(named->program, plan->tensors, plan->layout, named->memory.get())});
  describe_accesses(*plan);
  plan->driver = plan_driver_memory(*plan);
  add_fixed_bytes(*plan);
  note_offloaded_activations(*plan);
  return plan;
}

}  // namespace

Result<std::unique_ptr<RunPlan>> draft_plan(
    const ProgramSet& programs, const SessionOptions& options,
    const std::function<void(const ChunkLayout&, Placement&)>& choose) {
  STRATA_TRY(check_options(options));
  const std::vector<const NamedProgram*> listed = present(programs);
  STRATA_TRY(check_programs(programs, listed, options));
  const std::size_t arena = searches_chunk_size(options) ? arena_of(programs) : 0;
  STRATA_TRY_ASSIGN(const ParameterUnion parameters, unite_parameters(listed));
  if (choose || states_may_fit(parameters.tensors, trains(listed), options))
    for (const std::int64_t bound : chunk_bounds(arena, options)) {
      STRATA_TRY_ASSIGN(std::unique_ptr<RunPlan> plan, lay_out(programs, options, bound));
      const UseTrace& uses = plan->of(ProgramRole::train).uses;
      std::optional<Placement> placement;
      if (choose) {
        placement.emplace();
        placement->classes = slot_classes(plan->layout);
        placement->homes.resize(plan->layout.n_chunks());
        choose(plan->layout, *placement);
        set_minimum_windows(plan->layout, plan->trace, *placement);
      } else {
        placement = place_states(*plan, uses);
      }
      if (!placement) continue;
      plan->placement = *std::move(placement);
      plan_undo_log(*plan, uses);
      return plan;
    }
  return Status::error(Code::does_not_fit, "the run does not fit its budgets");
}

namespace {

/// Tests many budgets: everything that does not depend on them is computed once.
class Fitting {
 public:
  Fitting(std::span<const ProgramSet> choices, const SessionOptions& options)
      : choices_(choices), options_(options) {
    for (const ProgramSet& programs : choices) {
      arenas_.push_back(arena_of(programs));
      const std::vector<const NamedProgram*> listed = present(programs);
      auto parameters = unite_parameters(listed);
      tensors_.push_back(parameters.has_value() ? std::move(parameters->tensors) : TensorTable());
      trains_.push_back(trains(listed));
    }
  }

  bool fits(const TierBytes& budgets) {
    options_.budgets = budgets;
    for (std::size_t choice = choices_.size(); choice-- > 0;)  // the last ones need the least memory
      if (fits(choice)) return true;
    return false;
  }

 private:
  bool fits(std::size_t choice) {
    if (!states_may_fit(tensors_[choice], trains_[choice], options_)) return false;
    for (const std::int64_t bound : chunk_bounds(arenas_[choice], options_)) {
      RunPlan* const plan = laid_out(choice, bound);
      if (plan == nullptr) return false;
      plan->options.budgets = options_.budgets;
      if (!options_.prefetch) choose_prefetch(*plan);
      if (place_states(*plan, plan->of(ProgramRole::train).uses)) return true;
    }
    return false;
  }

  RunPlan* laid_out(std::size_t choice, std::int64_t max_chunk_elems) {
    const auto found = plans_.find({choice, max_chunk_elems});
    if (found != plans_.end()) return found->second.get();
    auto plan = lay_out(choices_[choice], options_, max_chunk_elems);
    return plans_.emplace(std::pair{choice, max_chunk_elems}, plan.has_value() ? *std::move(plan) : nullptr)
        .first->second.get();
  }

  std::span<const ProgramSet> choices_;
  SessionOptions options_;
  std::vector<std::size_t> arenas_;
  std::vector<TensorTable> tensors_;
  std::vector<bool> trains_;
  std::map<std::pair<std::size_t, std::int64_t>, std::unique_ptr<RunPlan>> plans_;
};

}  // namespace

Status explain_refusal(std::span<const ProgramSet> choices, const SessionOptions& options) {
  const std::size_t arena = arena_of(choices.back());
  STRATA_TRY_ASSIGN(const std::unique_ptr<RunPlan> plan,
                    lay_out(choices.back(), options, chunk_bounds(arena, options).back()));
  const PlacementRequest request = placement_request(plan->options);
  Fitting fitting(choices, options);
  return placement_error(
      plan->layout, plan->trace, request,
      suggest_budgets(request, [&](const TierBytes& budgets) { return fitting.fits(budgets); }));
}

}  // namespace strata::detail
