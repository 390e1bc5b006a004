#include "stage_layers.h"

#include <strata/config/load_config.h>
#include <strata/engine/region_costs.h>
#include <strata/runtime/str.h>
#include <strata/plan/activation_choices.h>
#include <strata/plan/split/model_pipeline.h>
#include <strata/config/decide.h>
#include <strata/config/train_config.h>
#include <strata/plan/record_programs.h>
#include <strata/config/pipeline_schedule.h>

#include "layer_regions.h"

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
  decide(loaded, "parallel.stage_layers", layers_of_stages(program, stages, schedule.stages()),
         profile == nullptr ? std::string("the slowest stage computes as few flops as possible")
                            : str("the slowest stage takes as little time as possible on ", profile->name));
  return {};
}

}  // namespace strata::detail
