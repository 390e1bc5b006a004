#include <strata/engine/forecast_ranks.h>

#include <algorithm>
#include <memory>
#include <set>

#include <strata/runtime/assert.h>
#include <strata/runtime/backend/sim_world.h>
#include <strata/runtime/backend/simulation.h>
#include <strata/runtime/str.h>

#include "plan/simulate_steps.h"

namespace strata {
namespace {

std::int32_t all_ranks(const RunPlan& plan) { return plan.options.ranks.ranks * plan.options.model.ranks(); }

Status check_plans(std::span<const RunPlan* const> plans, const MachineProfile& profile,
                   const ForecastOptions& options) {
  std::set<int> known;
  for (const RunPlan* plan : plans) {
    STRATA_TRY(detail::check_forecast(*plan, profile, options));
    const int rank = rank_in_mesh(plan->options.ranks, plan->options.model);
    if (all_ranks(*plan) != all_ranks(*plans.front()))
      return Status::error(Code::invalid, str("the forecast has plans of runs of ", all_ranks(*plans.front()),
                                              " and ", all_ranks(*plan), " ranks"));
    if (!known.insert(rank).second)
      return Status::error(Code::invalid, str("the forecast has two plans of rank ", rank));
  }
  return {};
}

}  // namespace

Result<std::vector<Forecast>> forecast_ranks(std::span<const RunPlan* const> plans,
                                             const MachineProfile& profile, const ForecastOptions& options) {
  STRATA_ASSERT(!plans.empty(), "a forecast of no ranks");
  STRATA_TRY(check_plans(plans, profile, options));
  std::vector<int> ranks;
  detail::SimulatedSteps steps;  // as many on every rank as any of them needs
  for (const RunPlan* plan : plans) {
    ranks.push_back(rank_in_mesh(plan->options.ranks, plan->options.model));
    const detail::SimulatedSteps of_rank = detail::simulated_steps(*plan, options);
    steps.warm = std::max(steps.warm, of_rank.warm);
    steps.counted = std::max(steps.counted, of_rank.counted);
  }
  SimWorld world(static_cast<int>(plans.size()));
  SimulatedRanks meetings(ranks);
  std::vector<Result<Forecast>> outcomes(plans.size(), Status::error(Code::internal, "no forecast"));
  world.run([&](int index) {
    const auto i = static_cast<std::size_t>(index);
    const MachineProfile of_rank = profile.shared_by(plans[i]->options.ranks.on_machine);
    const std::unique_ptr<Simulation> machine = Simulation::create(of_rank.simulation(), world, index);
    const SimulatedPeers peers{meetings, *machine};
    ForecastOptions of = options;
    of.track_prefix = str(options.track_prefix, "rank ", ranks[i], " ");
    outcomes[i] = detail::simulate_steps(*plans[i], of_rank, *machine, of, steps, &peers);
  });
  // A rank that fails leaves the others waiting, so its own error comes first.
  for (const bool lost : {false, true})
    for (std::size_t i = 0; i < plans.size(); ++i)
      if (const Status status = outcomes[i].status();
          !status.is_ok() && (status.code() == Code::lost_peer) == lost)
        return status.annotate(str("rank ", ranks[i]));
  if (meetings.n_unmatched() > 0)
    return Status::error(Code::lost_peer,
                         str(meetings.n_unmatched(), " collectives to which some of their ranks never came"));
  std::vector<Forecast> found;
  for (Result<Forecast>& outcome : outcomes) found.push_back(*std::move(outcome));
  return found;
}

}  // namespace strata
