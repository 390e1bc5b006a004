#include <strata/engine/plan_search.h>

#include <algorithm>
#include <map>

#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

#include "planning.h"

namespace strata {
namespace {

constexpr std::uint32_t kFarAhead = 6;  // chunks: as many as a plan by itself fetches ahead at most
constexpr double kWorthIt = 0.99;       // of the time before: less is within what a profile is good for

class Search {
 public:
  Search(const PlanChoices& choices, const EngineOptions& options, const MachineProfile& machine)
      : choices_(choices), options_(options), machine_(machine) {}

  Result<FoundPlan> run() {
    for (std::size_t i = 0; i < choices_.programs.size(); ++i) {
      if (i >= choices_.compared && best_.plan != nullptr) break;
      STRATA_TRY(consider(i, options_, str("programs ", i), {}));
    }
    if (best_.plan == nullptr && !choices_.explains)
      return Status::error(Code::does_not_fit, "the run does not fit its budgets");
    if (best_.plan == nullptr) {
      STRATA_TRY_ASSIGN(Engine::Choice none, Engine::plan_first(choices_.programs, options_));
      return Status::error(Code::internal, str("programs ", none.index, " fit only when asked again"));
    }
    STRATA_TRY(search());
    STRATA_TRY_ASSIGN(best_.plan,
                      Engine::plan_with(choices_.programs[best_.programs], best_options_, nullptr));
    return std::move(best_);
  }

 private:
  Status search() {
    STRATA_TRY(select_together());
    const std::optional<Start> second = runner_up();
    STRATA_TRY(descend());
    if (!second) return {};
    const EngineOptions options_of_first = best_options_;
    FoundPlan first = std::move(best_);
    best_ = FoundPlan();
    best_.tried = std::move(first.tried);
    STRATA_TRY(consider(second->programs, second->options, str("programs ", second->programs, " again"),
                        second->kept));
    STRATA_TRY(descend());
    if (best_.forecast.step_s < kWorthIt * first.forecast.step_s) return {};
    first.tried = std::move(best_.tried);
    best_ = std::move(first);
    best_options_ = options_of_first;
    return {};
  }

  /// The best of one of the programs, before changes that do not hang on them.
  struct Start {
    std::size_t programs = 0;
    EngineOptions options;
    std::vector<std::string> kept;
    double step_s = 0;
  };

  // Of other programs than the best plan's, if it is about as fast.
  std::optional<Start> runner_up() const {
    constexpr double kAbout = 1.05;
    const Start* best = nullptr;
    for (const Start& start : starts_)
      if (start.programs != best_.programs && (best == nullptr || start.step_s < best->step_s)) best = &start;
    if (best == nullptr || best->step_s > kAbout * best_.forecast.step_s) return std::nullopt;
    return *best;
  }

  // One change may pay only after another: all are gone through again while that helps.
  Status descend() {
    constexpr int kRounds = 3;
    for (int round = 0; round < kRounds; ++round) {
      const double before = best_.forecast.step_s;
      for (const std::vector<PlanChoices::Change>& group : choices_.changes) STRATA_TRY(improve(group));
      if (best_.forecast.step_s >= kWorthIt * before) break;
    }
    return {};
  }

  Status improve(const std::vector<PlanChoices::Change>& group) {
    const EngineOptions before = best_options_;
    for (const PlanChoices::Change& change : group) {
      EngineOptions changed = before;
      change.apply(changed, *best_.plan);
      std::vector<std::string> kept = best_.kept;
      if (std::find(kept.begin(), kept.end(), change.what) == kept.end()) kept.push_back(change.what);
      STRATA_TRY(consider(best_.programs, changed, change.what, kept));
    }
    return {};
  }

  Status select_together() {
    std::vector<const PlanChoices::Change*> tied;
    for (const std::vector<PlanChoices::Change>& group : choices_.changes)
      for (const PlanChoices::Change& change : group)
        if (change.with_programs) tied.push_back(&change);
    for (std::size_t i = 0; i < std::min(choices_.compared, choices_.programs.size()); ++i)
      for (std::size_t selection = 1; selection < std::size_t{1} << tied.size(); ++selection) {
        EngineOptions changed = options_;
        std::vector<std::string> kept;
        std::string what = str("programs ", i);
        for (std::size_t c = 0; c < tied.size(); ++c) {
          if ((selection >> c & 1) == 0) continue;
          tied[c]->apply(changed, *best_.plan);
          kept.push_back(tied[c]->what);
          what += str(", ", tied[c]->what);
        }
        STRATA_TRY(consider(i, changed, what, kept));
      }
    return {};
  }

  // `kept` is what the options have beyond those asked for.
  Status consider(std::size_t programs, const EngineOptions& options, const std::string& what,
                  const std::vector<std::string>& kept) {
    auto plan = draft_plan(choices_.programs[programs], options, nullptr);  // the one that is taken is proven
    if (!plan.has_value()) {
      best_.tried.push_back({what, 0});
      return plan.status().code() == Code::does_not_fit ? Status::ok() : plan.status();
    }
    STRATA_TRY_ASSIGN(const Forecast expected, forecast(**plan, machine_));
    best_.tried.push_back({what, expected.step_s});
    starts_.push_back({programs, options, kept, expected.step_s});
    if (best_.plan != nullptr && expected.step_s >= kWorthIt * best_.forecast.step_s) return {};
    best_.programs = programs;
    best_.plan = *std::move(plan);
    best_.forecast = expected;
    best_options_ = options;
    best_.kept = kept;
    return {};
  }

  const PlanChoices& choices_;
  const EngineOptions& options_;
  const MachineProfile& machine_;
  FoundPlan best_;
  EngineOptions best_options_;  // of its plan
  std::vector<Start> starts_;   // all that fitted so far
};

}  // namespace

// The size that most parameters are of a tensor of: chunks of it, and of its parts, waste little.
static std::int64_t usual_tensor(const RunPlan& plan) {
  std::map<std::int64_t, std::int64_t> params_of_size;
  for (const LayoutTensor& tensor : plan.tensors.specs) params_of_size[tensor.n_elems] += tensor.n_elems;
  return std::max_element(params_of_size.begin(), params_of_size.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

std::vector<std::vector<PlanChoices::Change>> changes_of(const OpenChoices& open) {
  std::vector<std::vector<PlanChoices::Change>> changes;
  const auto part_of_tensor = [](std::int64_t part, bool with_programs) {
    return PlanChoices::Change{std::string(kOtherChunk),
                               [part](EngineOptions& o, const RunPlan& best) {
                                 o.chunk_elems =
                                     std::max(ChunkLayout::kSliceAlign,
                                              round_up(usual_tensor(best) / part, ChunkLayout::kSliceAlign));
                               },
                               with_programs};
  };
  const auto part_of_chunk = [](std::int64_t part) {
    return PlanChoices::Change{std::string(kOtherChunk), [part](EngineOptions& o, const RunPlan& best) {
                                 o.chunk_elems = std::max(
                                     ChunkLayout::kSliceAlign,
                                     round_up(best.layout.chunk_elems() / part, ChunkLayout::kSliceAlign));
                               }};
  };
  const auto lands_in = [](GradientPolicy where, const char* what) {
    return PlanChoices::Change{what, [where](EngineOptions& o, const RunPlan&) { o.gradients = where; },
                               where == GradientPolicy::device};
  };
  if (open.chunk)
    changes.push_back({part_of_tensor(1, false), part_of_tensor(2, false), part_of_tensor(4, true),
                       part_of_chunk(2), part_of_chunk(4)});
  if (open.gradients)
    changes.push_back({lands_in(GradientPolicy::device, "offload.gradients=device"),
                       lands_in(GradientPolicy::pinned, "offload.gradients=pinned")});
  // No forecast knows how often a run is clipped: with a log, auto speculates while it pays.
  const auto with_log = [](bool far_ahead) {
    return PlanChoices::Change{std::string(kUndoLog), [far_ahead](EngineOptions& o, const RunPlan&) {
                                 o.step_mode = StepMode::automatic;
                                 o.undo_bytes = kUnlimited;
                                 if (far_ahead) o.prefetch = kFarAhead;
                               }};
  };
  const auto ahead = [](std::uint32_t chunks) {
    return PlanChoices::Change{std::string(kOtherPrefetch),
                               [chunks](EngineOptions& o, const RunPlan&) { o.prefetch = chunks; }};
  };
  if (open.prefetch) changes.push_back({ahead(kFarAhead), ahead(2)});
  if (open.step_mode) changes.push_back({with_log(false), with_log(open.prefetch)});
  if (open.device_first)
    changes.push_back({{std::string(kDeviceFirst),
                        [](EngineOptions& o, const RunPlan&) { o.policy = PlacementPolicy::device; }}});
  return changes;
}

Result<FoundPlan> search_plan(const PlanChoices& choices, const EngineOptions& options,
                              const MachineProfile& machine) {
  return Search(choices, options, machine).run();
}

}  // namespace strata
