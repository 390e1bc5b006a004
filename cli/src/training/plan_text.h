#pragma once

#include <string>
#include <vector>

#include "training/job.h"

namespace strata::cli {

/// ", 75 % in /mnt/a, 25 % in /mnt/b" of what the NVMe tier holds, where that is several folders.
std::string paths_text(const std::vector<NvmePath>& paths);
/// The table shown before a run: model, machine, budgets and plan by tier.
std::string start_table(const TrainConfig& config, const PlannedJob& job, const std::string& nvme_note);
/// plan.json; `forecast` is a JSON object, or nothing.
std::string plan_json(const TrainConfig& config, const RunPlan& plan, Recompute recompute,
                      const std::string& forecast = {});
/// Of one optimizer step.
double tokens_per_step(const TrainConfig& config) noexcept;

}  // namespace strata::cli
