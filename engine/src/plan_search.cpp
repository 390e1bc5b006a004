#include <strata/engine/plan_search.h>

#include <strata/runtime/str.h>

namespace strata {
namespace {

constexpr double kWorthIt = 0.99;  // of the time before: less is within what a profile is good for

class Search {
 public:
  Search(const PlanChoices& choices, const EngineOptions& options, const MachineProfile& machine)
      : choices_(choices), options_(options), machine_(machine) {}

  Result<FoundPlan> run() {
    for (std::size_t i = 0; i < choices_.programs.size(); ++i) {
      if (i >= choices_.compared && best_.plan != nullptr) break;
      STRATA_TRY(consider(i, options_, str("programs ", i), best_.plan == nullptr ? 1.0 : kWorthIt));
    }
    if (best_.plan == nullptr) {
      STRATA_TRY_ASSIGN(Engine::Choice none, Engine::plan_first(choices_.programs, options_));
      return Status::error(Code::internal, str("programs ", none.index, " fit only when asked again"));
    }
    for (const std::vector<PlanChoices::Change>& group : choices_.changes) STRATA_TRY(improve(group));
    return std::move(best_);
  }

 private:
  Status improve(const std::vector<PlanChoices::Change>& group) {
    EngineOptions before = options_, kept = options_;
    const PlanChoices::Change* chosen = nullptr;
    for (const PlanChoices::Change& change : group) {
      EngineOptions changed = before;
      change.apply(changed, *best_.plan);
      const RunPlan* const was = best_.plan.get();
      STRATA_TRY(consider(best_.programs, changed, change.what, kWorthIt));
      if (best_.plan.get() == was) continue;
      chosen = &change;
      kept = changed;
    }
    if (chosen != nullptr) best_.kept.push_back(chosen->what);
    options_ = kept;
    return {};
  }

  Status consider(std::size_t programs, const EngineOptions& options, const std::string& what, double below) {
    auto plan = Engine::plan_with(choices_.programs[programs], options, nullptr);
    if (!plan.has_value()) {
      best_.tried.push_back({what, 0});
      return plan.status().code() == Code::does_not_fit ? Status::ok() : plan.status();
    }
    STRATA_TRY_ASSIGN(const Forecast expected, forecast(**plan, machine_));
    best_.tried.push_back({what, expected.step_s});
    if (best_.plan != nullptr && expected.step_s >= below * best_.forecast.step_s) return {};
    best_.programs = programs;
    best_.plan = *std::move(plan);
    best_.forecast = expected;
    return {};
  }

  const PlanChoices& choices_;
  EngineOptions options_;
  const MachineProfile& machine_;
  FoundPlan best_;
};

}  // namespace

Result<FoundPlan> search_plan(const PlanChoices& choices, const EngineOptions& options,
                              const MachineProfile& machine) {
  return Search(choices, options, machine).run();
}

}  // namespace strata
