#include <strata/engine/plan_search.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include <strata/engine/engine.h>

#include "plan/plan_changes.h"
#include "plan/planning.h"

namespace strata {
namespace {

// A share of the time before; smaller gains are within a profile's error.
constexpr double kMinImprovement = 0.99;

/// Seconds for which a step copies parameters to the device at least, whatever the placement: each of its
/// runs reads all of them, and the device holds its budget of them when a run begins. 0 with several ranks,
/// which keep parts.
double least_copies_s(const ProgramSet& programs, const SessionOptions& options,
                      const MachineProfile& machine) {
  const Program& train = programs[ProgramRole::train];
  const auto device = static_cast<double>(options.budgets[static_cast<std::size_t>(Tier::device)]);
  if (train.code.empty() || options.ranks.ranks > 1 || options.model.ranks() > 1) return 0;
  double bytes = 0;
  for (const ParamInfo& param : train.params) bytes += static_cast<double>(train.value(param.value).bytes());
  const double runs = static_cast<double>(options.grad_accum) / train.micro_batches;
  return runs * std::max(0.0, bytes - device) / machine.h2d_bytes_per_s;
}

class PlanSearch {
 public:
  PlanSearch(const PlanSearchRequest& choices, const SessionOptions& options, const MachineProfile& machine)
      : choices_(choices),
        options_(options),
        machine_(machine),
        changes_(detail::list_plan_changes(choices.open)) {
    for (const ProgramSet& programs : choices.programs)
      least_s_.push_back(least_copies_s(programs, options, machine));
  }

  Result<FoundPlan> run() {
    for (const std::size_t i : in_turn()) {
      if (i >= choices_.compared && best_.plan != nullptr) break;
      STRATA_TRY(try_candidate(i, options_));
    }
    if (best_.plan == nullptr)
      return choices_.explains ? detail::explain_refusal(choices_.programs, options_)
                               : Status::error(Code::does_not_fit, "the run does not fit its budgets");
    STRATA_TRY(search());
    STRATA_TRY_ASSIGN(best_.plan,
                      Engine::plan_with(choices_.programs[best_.programs], best_.options, nullptr));
    best_.candidates = starts_.size();
    return std::move(best_);
  }

 private:
  // Programs that copy far more than others come after them, and are then not even laid out.
  std::vector<std::size_t> in_turn() const {
    std::vector<std::size_t> order(choices_.programs.size());
    std::iota(order.begin(), order.end(), 0);
    const auto compared =
        order.begin() + static_cast<std::ptrdiff_t>(std::min(choices_.compared, order.size()));
    const double least = *std::min_element(least_s_.begin(), least_s_.end());
    std::stable_partition(order.begin(), compared, [&](std::size_t i) { return least_s_[i] <= 2 * least; });
    return order;
  }

  Status search() {
    STRATA_TRY(select_together());
    const std::optional<Start> second = runner_up();
    STRATA_TRY(descend());
    if (!second) return {};
    FoundPlan first = std::move(best_);
    best_ = FoundPlan();
    STRATA_TRY(try_candidate(second->programs, second->options));
    STRATA_TRY(descend());
    if (best_.forecast.step_s >= kMinImprovement * first.forecast.step_s) best_ = std::move(first);
    return {};
  }

  /// A plan that fits.
  struct Start {
    std::size_t programs = 0;
    SessionOptions options;
    double step_s = 0;
  };

  // The best start with other programs than the best plan's, if it is about as fast. It is compared before
  // any changes that do not depend on the programs.
  std::optional<Start> runner_up() const {
    constexpr double kAbout = 1.05;
    const Start* best = nullptr;
    for (const Start& start : starts_)
      if (start.programs != best_.programs && (best == nullptr || start.step_s < best->step_s)) best = &start;
    if (best == nullptr || best->step_s > kAbout * best_.forecast.step_s) return std::nullopt;
    return *best;
  }

  // A change may pay off only after another one, so all are tried again as long as that helps.
  Status descend() {
    constexpr int kRounds = 3;
    for (int round = 0; round < kRounds; ++round) {
      const double before = best_.forecast.step_s;
      for (const std::vector<detail::PlanChange>& group : changes_) STRATA_TRY(improve(group));
      if (best_.forecast.step_s >= kMinImprovement * before) break;
    }
    return {};
  }

  Status improve(const std::vector<detail::PlanChange>& group) {
    const SessionOptions before = best_.options;
    for (const detail::PlanChange& change : group) {
      SessionOptions changed = before;
      change.apply(changed, *best_.plan);
      STRATA_TRY(try_candidate(best_.programs, changed));
    }
    return {};
  }

  Status select_together() {
    std::vector<const detail::PlanChange*> tied;
    for (const std::vector<detail::PlanChange>& group : changes_)
      for (const detail::PlanChange& change : group)
        if (change.with_programs) tied.push_back(&change);
    for (std::size_t i = 0; i < std::min(choices_.compared, choices_.programs.size()); ++i)
      for (std::size_t selection = 1; selection < std::size_t{1} << tied.size(); ++selection) {
        SessionOptions changed = options_;
        for (std::size_t c = 0; c < tied.size(); ++c)
          if ((selection >> c & 1) != 0) tied[c]->apply(changed, *best_.plan);
        STRATA_TRY(try_candidate(i, changed));
      }
    return {};
  }

  // Candidates are only laid out and simulated; the plan chosen in the end is proven by a dry run.
  Status try_candidate(std::size_t programs, const SessionOptions& options) {
    const auto [known, is_new] =
        known_.try_emplace(PlanKey{programs, options.chunk_elems, options.gradients, options.prefetch,
                                   options.step_mode, options.undo_bytes, options.policy});
    if (!is_new && (!known->second || !is_better(*known->second))) return {};
    if (!is_better(least_s_[programs])) return {};
    auto plan = detail::draft_plan(choices_.programs[programs], options, nullptr);
    if (!plan.has_value()) return ignore_does_not_fit(plan.status());
    const Result<Forecast> expected = forecast(**plan, machine_);
    if (!expected.has_value()) return ignore_does_not_fit(expected.status());
    if (is_new) starts_.push_back({programs, options, expected->step_s});
    known->second = expected->step_s;
    if (!is_better(expected->step_s)) return {};
    best_.programs = programs;
    best_.plan = *std::move(plan);
    best_.forecast = *expected;
    best_.options = options;
    return {};
  }
  bool is_better(double step_s) const {
    return best_.plan == nullptr || step_s < kMinImprovement * best_.forecast.step_s;
  }
  static Status ignore_does_not_fit(const Status& status) {
    return status.code() == Code::does_not_fit ? Status::ok() : status;
  }

  const PlanSearchRequest& choices_;
  const SessionOptions& options_;
  const MachineProfile& machine_;
  const std::vector<std::vector<detail::PlanChange>> changes_;
  std::vector<double> least_s_;  // one for each of the programs
  FoundPlan best_;
  std::vector<Start> starts_;  // all that fit so far
  // Everything in which candidates may differ, with the forecast step time; not set if the candidate does not
  // fit.
  using PlanKey = std::tuple<std::size_t, std::int64_t, GradientPolicy, std::optional<std::uint32_t>,
                             StepMode, std::optional<std::uint64_t>, PlacementPolicy>;
  std::map<PlanKey, std::optional<double>> known_;
};

}  // namespace

Result<FoundPlan> search_plan(const PlanSearchRequest& choices, const SessionOptions& options,
                              const MachineProfile& machine) {
  return PlanSearch(choices, options, machine).run();
}

}  // namespace strata
