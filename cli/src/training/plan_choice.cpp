#include "training/plan_choice.h"

#include <algorithm>

#include "training/workload.h"

namespace strata::cli {
namespace {

// Instructions: laying out the memory of more takes longer than a search may.
constexpr std::size_t kLongestSearched = 16384;

// What is auto and changes a step's time alone.
PlanSearchRequest ways_to_run(const ConfigTree& tree, std::span<const ProgramSet> programs,
                              std::span<const ActivationChoice> activations) {
  PlanSearchRequest ways;
  ways.programs = programs;
  ways.compared =
      static_cast<std::size_t>(std::find_if(activations.begin(), activations.end(),
                                            [](const ActivationChoice& a) { return a.share_away > 0; }) -
                               activations.begin());
  const auto is_open = [&](const char* key) { return tree.entry(key).automatic; };
  ways.open = {.step_mode = is_open("offload.step_mode") && is_open("offload.undo"),
               .chunk = is_open("offload.chunk"),
               .gradients = is_open("offload.gradients"),
               .prefetch = is_open("offload.prefetch"),
               .device_first = is_open("offload.policy")};
  return ways;
}

Status record(const TrainConfig& c, std::span<const ActivationChoice> choices, WaysToRun& ways) {
  for (const ActivationChoice& choice : choices) {
    STRATA_TRY_ASSIGN(ProgramSet programs, record_programs(c, choice));
    if (choice.by_layer && c.offload.order == "auto" && programs.train.code.size() > kLongestSearched)
      continue;
    const Op goes = choice.to_nvme ? Op::store_begin : Op::offload_begin;
    if (choice.share_away > 0 && c.offload.activations == "auto" && !has_op(programs.train, goes))
      continue;  // nothing may go there, so it is a program that is tried already
    programs.plan_memory();
    ways.activations.push_back(choice);
    ways.programs.push_back(std::move(programs));
  }
  return {};
}

// By time, or the first that fits.
Result<FoundPlan> choose(const LoadedConfig& loaded, const WaysToRun& ways, const EngineOptions& asked,
                         const MachineProfile* profile, bool explains) {
  if (profile == nullptr) {
    STRATA_TRY_ASSIGN(Engine::Choice first, Engine::plan_first_fit(ways.programs, asked, explains));
    FoundPlan found;
    found.programs = first.index;
    found.plan = std::move(first.plan);
    found.options = asked;
    return found;
  }
  PlanSearchRequest choices = ways_to_run(loaded.tree, ways.programs, ways.activations);
  choices.explains = explains;
  return search_plan(choices, asked, *profile);
}

}  // namespace

Result<FoundPlan> choose_plan(const LoadedConfig& loaded, WaysToRun& ways, const EngineOptions& asked,
                              const MachineProfile* profile, bool explains) {
  const std::vector<ActivationChoice> all = activation_choices(loaded.config, profile != nullptr);
  const auto leaving = std::find_if(all.begin(), all.end(), [](const auto& a) { return a.share_away > 0; });
  const std::span<const ActivationChoice> staying(all.begin(), leaving);
  STRATA_TRY(record(loaded.config, staying, ways));
  if (!staying.empty()) {
    const bool last = leaving == all.end();
    auto found = choose(loaded, ways, asked, profile, explains && last);
    if (found.has_value() || last || found.status().code() != Code::does_not_fit) return found;
  }
  STRATA_TRY(record(loaded.config, {leaving, all.end()}, ways));
  return choose(loaded, ways, asked, profile, explains);
}

}  // namespace strata::cli
