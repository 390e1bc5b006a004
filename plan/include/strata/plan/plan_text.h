#pragma once

#include <string>
#include <vector>

#include <strata/plan/job.h>

namespace strata {

struct TrainConfig;

/// How the NVMe tier is divided among its directories: ", 75 % in /mnt/a, 25 % in /mnt/b". Empty for a single
/// one.
std::string paths_text(const std::vector<NvmePath>& paths);
/// The table shown before a run: model, machine, budgets, and the plan of each tier.
std::string start_table(const TrainConfig& config, const PlannedJob& job, const std::string& nvme_note);
struct JsonField {
  std::string name;
  std::string value;  ///< JSON
};
/// The contents of plan.json, with more fields at its end.
std::string plan_json(const TrainConfig& config, const RunPlan& plan, Recompute recompute,
                      const std::vector<JsonField>& more = {});
/// Tokens of one optimizer step.
double tokens_per_step(const TrainConfig& config) noexcept;

}  // namespace strata
