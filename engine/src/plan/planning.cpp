#include "plan/planning.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <strata/offload/placement_planner.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>
#include <strata/session/pass_schedule.h>
#include <strata/session/state_planning.h>

#include "execute/program_memory.h"
#include "plan/check_programs.h"

namespace strata::detail {
namespace {

std::size_t arena_of(const NamedProgram& program) {
  return program.memory != nullptr ? program.memory->arena_bytes : plan_memory(program.program).arena_bytes;
}

// The size of the model's activations on the device, by the program that represents it.
std::size_t arena_of(const CheckedPrograms& checked) {
  // Among the programs that continue sequences, the one for few tokens represents the model.
  const bool continues = checked.programs.front()->role == ProgramRole::prefill;
  std::size_t bytes = arena_of(continues ? *checked.programs.back() : *checked.programs.front());
  for (const NamedProgram* named : checked.programs)
    if (named->role == ProgramRole::refresh) bytes = std::max(bytes, arena_of(*named));
  return bytes;
}

// The accesses of all programs, one after the other, as the planner sees them.
void describe_accesses(RunPlan& plan) {
  const PlannedProgram& first = plan.programs.front();
  const bool trains = first.role == ProgramRole::train;
  static const UseTrace kNothing;
  plan.trace = access_trace(
      trains ? first.program.uses : kNothing, plan,
      trains ? plan.steps.front().parts.front().passes : plan.options.grad_accum / plan.options.ranks.ranks,
      trains);
  for (const PlannedProgram& other : plan.programs) {
    if (trains && &other == &first) continue;
    const AccessTrace trace = access_trace(other.program.uses, plan, 1, false);
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

// The programs of each trainee, in the order in which they are first named.
std::vector<PlannedStep> plan_steps(const CheckedPrograms& checked, const SessionOptions& options) {
  std::vector<PlannedStep> steps;
  for (std::size_t i = 0; i < checked.trained().size(); ++i) {
    const NamedProgram& named = *checked.programs[i];
    auto step = std::find_if(steps.begin(), steps.end(),
                             [&](const PlannedStep& known) { return known.trainee == named.trainee; });
    if (step == steps.end()) step = steps.insert(step, {named.trainee, {}});
    const std::int32_t n = micro_batches_of(named, options);
    step->parts.push_back({i, n / options.ranks.ranks / named.program.micro_batches, n, named.weight});
  }
  return steps;
}

// The options of the trainees, in the order of the steps. One without a name needs no entry.
std::vector<TraineeOptions> trainee_options(const std::vector<PlannedStep>& steps,
                                            const SessionOptions& options) {
  if (steps.size() == 1 && steps.front().parts.size() == 1 && options.trainees.empty()) return {};
  std::vector<TraineeOptions> trainees;
  for (const PlannedStep& step : steps) {
    const auto given = std::find_if(options.trainees.begin(), options.trainees.end(),
                                    [&](const TraineeOptions& of) { return of.name == step.trainee; });
    trainees.push_back(given == options.trainees.end() ? TraineeOptions{.name = step.trainee} : *given);
    trainees.back().micro_batches = step.micro_batches();
  }
  return trainees;
}

// The last pass of each trainee's step; if nothing is trained, a pass without uses.
std::vector<const UseTrace*> last_passes(const RunPlan& plan) {
  static const UseTrace kNothing;
  std::vector<const UseTrace*> last;
  for (const PlannedStep& step : plan.steps)
    last.push_back(&plan.programs[step.parts.back().program].program.uses);
  if (last.empty()) last.push_back(&kNothing);
  return last;
}

// Does everything except the placement, for checked options. The search for a chunk size considers sizes up
// to `max_chunk_elems`; 0: no limit.
Result<std::unique_ptr<RunPlan>> lay_out(const CheckedPrograms& checked, const SessionOptions& options,
                                         std::int64_t max_chunk_elems) {
  auto plan = std::make_unique<RunPlan>();
  plan->options = options;
  plan->snapshots = checked.snapshots;
  plan->steps = plan_steps(checked, options);
  plan->options.trainees = trainee_options(plan->steps, options);
  plan->trace.training = checked.train();
  plan->tensors = checked.parameters.tensors;
  plan->init_of_tensor = checked.parameters.inits;
  plan->quantized_of_tensor = checked.parameters.quantized;
  STRATA_TRY(lay_out_states(*plan, max_chunk_elems));
  for (const NamedProgram* named : checked.programs)
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
  STRATA_TRY_ASSIGN(const CheckedPrograms checked, check_programs(programs, options));
  const std::size_t arena = searches_chunk_size(options) ? arena_of(checked) : 0;
  if (choose || states_may_fit(checked.parameters.tensors, checked.train(), options))
    for (const std::int64_t bound : chunk_bounds(arena, options)) {
      STRATA_TRY_ASSIGN(std::unique_ptr<RunPlan> plan, lay_out(checked, options, bound));
      const std::vector<const UseTrace*> uses = last_passes(*plan);
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
  /// `choices` outlive the object.
  Fitting(std::span<const CheckedPrograms> choices, const SessionOptions& options)
      : choices_(choices), options_(options) {
    for (const CheckedPrograms& checked : choices) arenas_.push_back(arena_of(checked));
  }

  bool fits(const TierBytes& budgets) {
    options_.budgets = budgets;
    for (std::size_t choice = choices_.size(); choice-- > 0;)  // the last ones need the least memory
      if (fits(choice)) return true;
    return false;
  }

 private:
  bool fits(std::size_t choice) {
    const CheckedPrograms& checked = choices_[choice];
    if (!states_may_fit(checked.parameters.tensors, checked.train(), options_)) return false;
    for (const std::int64_t bound : chunk_bounds(arenas_[choice], options_)) {
      const LaidOut* const found = laid_out(choice, bound);
      if (found == nullptr) return false;
      // An undo log takes room that is left, and no test reads how deep a run prefetches.
      SessionOptions options = options_;
      options.prefetch = options.prefetch.value_or(0);
      if (found->test.fits(placement_request(options))) return true;
    }
    return false;
  }

  /// What a test needs of a plan: the programs of all choices would be too large to keep.
  struct LaidOut {
    ChunkLayout layout;
    PlacementTest test;
    explicit LaidOut(RunPlan& plan) : layout(std::move(plan.layout)), test(layout, plan.trace) {}
  };

  const LaidOut* laid_out(std::size_t choice, std::int64_t max_chunk_elems) {
    const auto found = known_.find({choice, max_chunk_elems});
    if (found != known_.end()) return found->second.get();
    auto plan = lay_out(choices_[choice], options_, max_chunk_elems);
    return known_
        .emplace(std::pair{choice, max_chunk_elems},
                 plan.has_value() ? std::make_unique<LaidOut>(**plan) : nullptr)
        .first->second.get();
  }

  std::span<const CheckedPrograms> choices_;
  SessionOptions options_;
  std::vector<std::size_t> arenas_;
  std::map<std::pair<std::size_t, std::int64_t>, std::unique_ptr<LaidOut>> known_;
};

}  // namespace

Status explain_refusal(std::span<const ProgramSet> choices, const SessionOptions& options) {
  std::vector<CheckedPrograms> checked;
  for (const ProgramSet& programs : choices) {
    STRATA_TRY_ASSIGN(CheckedPrograms each, check_programs(programs, options));
    checked.push_back(std::move(each));
  }
  const std::size_t arena = arena_of(checked.back());
  STRATA_TRY_ASSIGN(const std::unique_ptr<RunPlan> plan,
                    lay_out(checked.back(), options, chunk_bounds(arena, options).back()));
  const PlacementRequest request = placement_request(plan->options);
  Fitting fitting(checked, options);
  return placement_error(
      plan->layout, plan->trace, request,
      suggest_budgets(request, [&](const TierBytes& budgets) { return fitting.fits(budgets); }));
}

}  // namespace strata::detail
