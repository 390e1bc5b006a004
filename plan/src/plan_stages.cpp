#include <strata/plan/split/plan_stages.h>

#include <utility>

#include <strata/config/config_request.h>
#include <strata/config/load_config.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

// The keys of activations that rank 0 has decided, and a stage of a pipeline may decide otherwise.
std::vector<std::string> activations_to_decide(const LoadedConfig& loaded) {
  std::vector<std::string> assignments;
  if (loaded.config.parallel.pp == 1 || loaded.tree.is_auto("offload.auto_keys")) return assignments;
  for (const std::string& key : loaded.tree.texts("offload.auto_keys"))
    if (key == "train.recompute" || key == "offload.activations" || key == "offload.activation_share")
      assignments.push_back(key + "=auto");
  return assignments;
}

}  // namespace

Result<PlannedJob> plan_follower(LoadedConfig& loaded, const LoadDecided& load, PlanBasis basis) {
  STRATA_TRY_ASSIGN(loaded, load({}));
  const std::vector<std::string> open = activations_to_decide(loaded);
  basis.by_forecast = false;
  basis.explain_refusal = open.empty();
  auto planned = plan_job(loaded, basis);
  if (planned.has_value() || planned.status().code() != Code::does_not_fit || open.empty()) return planned;
  STRATA_TRY_ASSIGN(loaded, load(open));
  basis.explain_refusal = true;
  return plan_job(loaded, basis);
}

Result<std::vector<PlannedJob>> plan_later_stages(const LoadedConfig& first, const PlanBasis& basis) {
  const ConfigRequest decided{.items = {"plan.toml"}, .file_text = first.tree.to_toml(true)};
  const ModelParallel model = model_parallel(first.config);
  std::vector<PlannedJob> stages;
  for (std::int32_t stage = 1; stage < model.pp; ++stage) {
    const auto load = [&](const std::vector<std::string>& assignments) -> Result<LoadedConfig> {
      STRATA_TRY_ASSIGN(LoadedConfig loaded, load_config(with_overrides(decided, assignments)));
      loaded.config.parallel = first.config.parallel;
      loaded.config.train.grad_accum = first.config.train.grad_accum;
      loaded.config.parallel.rank = stage * (model.ranks() / model.pp);  // stages are outermost in a copy
      loaded.config.data.packing = first.config.data.packing;
      return loaded;
    };
    LoadedConfig loaded;
    auto planned = plan_follower(loaded, load, basis);
    if (!planned.has_value()) return planned.status().annotate(str("stage ", stage, " of ", model.pp));
    stages.push_back(*std::move(planned));
  }
  return stages;
}

}  // namespace strata
