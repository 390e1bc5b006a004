#include "schedule_choice.h"

#include <algorithm>
#include <set>
#include <vector>

#include <fmt/format.h>

#include <strata/config/load_config.h>
#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>
#include <strata/plan/split/dry_run_stages.h>
#include <strata/plan/split/model_pipeline.h>
#include <strata/config/decide.h>
#include <strata/config/train_config.h>
#include <strata/config/model_choice.h>
#include <strata/config/pipeline_schedule.h>

namespace strata::detail {
namespace {

struct Candidate {
  const char* schedule;
  int virtual_stages = 1;
  double step_s = 0;
};
std::string name_of(const Candidate& c) {
  return c.virtual_stages == 1 ? std::string(c.schedule)
                               : str(c.schedule, " with ", c.virtual_stages, " stages a rank");
}
void apply(const Candidate& candidate, TrainConfig& config) {
  config.parallel.schedule = candidate.schedule;
  config.parallel.virtual_stages = candidate.virtual_stages;
}

// The schedules that the layers, the micro-batches and the user's settings allow.
std::vector<Candidate> candidates_of(TrainConfig config) {
  std::optional<int> wanted = config.parallel.virtual_stages;
  if (const auto& layers = config.parallel.stage_layers)
    wanted = static_cast<int>(layers->size()) / config.parallel.pp;
  const std::int64_t layers = decoder_config(config).layers;
  const int layers_of_a_rank = static_cast<int>(layers / config.parallel.pp);
  std::set<int> numbers = {1, layers_of_a_rank};
  for (const int v : {2, 4, 8})
    if (v < layers_of_a_rank) numbers.insert(v);
  std::vector<Candidate> all;
  for (const char* schedule : {"1f1b", "zb-h1", "interleaved", "breadth-first"}) {
    const bool several =
        std::string_view(schedule) == "interleaved" || std::string_view(schedule) == "breadth-first";
    for (const int v : numbers) {
      if ((v > 1) != several || wanted.value_or(v) != v) continue;
      apply({schedule, v}, config);
      if (pipeline_schedule(config).has_value()) all.push_back({schedule, v});
    }
  }
  return all;
}

// The first that fits, or the first of all.
Candidate first_that_fits(const LoadedConfig& loaded, const std::vector<Candidate>& candidates) {
  for (const Candidate& candidate : candidates) {
    LoadedConfig with = loaded;
    apply(candidate, with.config);
    if (check_stages_fit(with).is_ok()) return candidate;
  }
  return candidates.front();
}

// The candidates that fit, the fastest first.
Result<std::vector<Candidate>> by_time(const LoadedConfig& loaded, std::vector<Candidate> candidates,
                                       const MachineProfile& profile, bool other_machine) {
  std::vector<Candidate> fit;
  for (Candidate& candidate : candidates) {
    LoadedConfig with = loaded;
    apply(candidate, with.config);
    const auto run = dry_run_stages(with, profile, other_machine);
    if (!run.has_value() && run.status().code() != Code::does_not_fit) return run.status();
    if (!run.has_value()) continue;
    candidate.step_s = run->step_s;
    fit.push_back(candidate);
  }
  std::stable_sort(fit.begin(), fit.end(),
                   [](const Candidate& a, const Candidate& b) { return a.step_s < b.step_s; });
  return fit;
}

std::string why(const std::vector<Candidate>& fit, const MachineProfile& profile) {
  std::string others;
  for (std::size_t i = 1; i < std::min<std::size_t>(fit.size(), 4); ++i)
    others += fmt::format("{}{} takes {:.4g} s", i == 1 ? "; " : ", ", name_of(fit[i]), fit[i].step_s);
  return fmt::format("the fastest of {} that fit, {:.4g} s a step, by the forecast for {}{}",
                     plural(fit.size(), "schedule"), fit.front().step_s, profile.name, others);
}

}  // namespace

Status decide_schedule(LoadedConfig& loaded, const MachineProfile* profile, bool other_machine) {
  TrainConfig& c = loaded.config;
  if (c.parallel.pp == 1) return {};
  const bool is_open = c.parallel.schedule == "auto";
  Candidate chosen{"1f1b"};
  std::string reason;
  if (is_open) {
    const std::vector<Candidate> candidates = candidates_of(c);
    if (profile == nullptr && !candidates.empty()) {
      chosen = first_that_fits(loaded, candidates);
      reason =
          "there is no forecast, and no schedule before it in 1f1b, zb-h1, interleaved, breadth-first fits";
    } else if (!candidates.empty()) {
      chosen = candidates.front();
      STRATA_TRY_ASSIGN(const std::vector<Candidate> fit,
                        by_time(loaded, candidates, *profile, other_machine));
      reason = fit.empty() ? "no schedule fits" : why(fit, *profile);
      if (!fit.empty()) chosen = fit.front();
    }
    decide(loaded, "parallel.schedule", std::string(chosen.schedule), reason);
  }
  if (c.parallel.virtual_stages) return {};
  decide(loaded, "parallel.virtual_stages", std::int64_t{is_open ? chosen.virtual_stages : virtual_stages(c)},
         is_open ? reason : std::string("2 with interleaved and breadth-first, else 1"));
  return {};
}

}  // namespace strata::detail
