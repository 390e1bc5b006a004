#include <strata/engine/plan_search.h>

#include <algorithm>

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
    if (best_.plan == nullptr && !choices_.explains)
      return Status::error(Code::does_not_fit, "the run does not fit its budgets");
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

std::vector<std::vector<PlanChoices::Change>> changes_of(const OpenChoices& open) {
  std::vector<std::vector<PlanChoices::Change>> changes;
  const auto sized = [](double by) {
    return PlanChoices::Change{std::string(kOtherChunk), [by](EngineOptions& o, const RunPlan& best) {
                                 const double elems = by * static_cast<double>(best.layout.chunk_elems());
                                 o.chunk_elems = std::max<std::int64_t>(1, static_cast<std::int64_t>(elems) / ChunkLayout::kSliceAlign) *
                                                 ChunkLayout::kSliceAlign;
                               }};
  };
  const auto lands_in = [](GradientPolicy where, const char* what) {
    return PlanChoices::Change{what, [where](EngineOptions& o, const RunPlan&) { o.gradients = where; }};
  };
  if (open.step_mode)
    changes.push_back({{std::string(kSpeculates), [](EngineOptions& o, const RunPlan&) { o.step_mode = StepMode::speculative; }}});
  if (open.chunk) changes.push_back({sized(2), sized(0.5), sized(0.25)});
  if (open.gradients)
    changes.push_back({lands_in(GradientPolicy::device, "offload.gradients=device"),
                       lands_in(GradientPolicy::pinned, "offload.gradients=pinned")});
  return changes;
}

Result<FoundPlan> search_plan(const PlanChoices& choices, const EngineOptions& options,
                              const MachineProfile& machine) {
  return Search(choices, options, machine).run();
}

}  // namespace strata
