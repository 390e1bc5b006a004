#include "plan/stage_layers.h"

#include <strata/engine/region_costs.h>
#include <strata/runtime/str.h>
#include <strata/train/activation_choices.h>
#include <strata/train/split/model_pipeline.h>
#include <strata/train/training_data.h>

#include "plan/layer_regions.h"

namespace strata::detail {

Status decide_stage_layers(LoadedConfig& loaded, const MachineProfile* profile) {
  TrainConfig& c = loaded.config;
  if (c.parallel.pp == 1 || c.parallel.stage_layers) return {};
  const std::vector<ActivationChoice> choices = activation_choices(c, false);
  STRATA_TRY_ASSIGN(const Program program, record_micro_batch(c, choices.front()));
  STRATA_TRY_ASSIGN(const PipelineSchedule schedule, pipeline_schedule(c));
  const std::vector<double> costs =
      profile == nullptr ? region_flops(program) : region_seconds(program, *profile);
  STRATA_TRY_ASSIGN(const std::vector<std::int32_t> stages, balance_stages(costs, schedule.stages()));
  c.parallel.stage_layers = layers_of_stages(program, stages, schedule.stages());
  loaded.tree.resolve("parallel.stage_layers", *c.parallel.stage_layers,
                      profile == nullptr
                          ? std::string("the slowest stage computes as few flops as possible")
                          : str("the slowest stage takes as little time as possible on ", profile->name));
  return {};
}

}  // namespace strata::detail
