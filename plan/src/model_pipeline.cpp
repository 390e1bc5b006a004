#include <strata/plan/split/model_pipeline.h>

#include <algorithm>

#include <strata/config/train_config.h>
#include <strata/runtime/str.h>
#include <strata/config/pipeline_schedule.h>

#include "layer_regions.h"

namespace strata {
Result<ModelPipeline> ModelPipeline::create(const Program& program, const TrainConfig& config) {
  ModelPipeline made;
  STRATA_TRY_ASSIGN(made.schedule_, pipeline_schedule(config));
  const std::int32_t stages = made.schedule_.stages();
  if (config.parallel.stage_layers) {
    made.stage_of_region_ = detail::stages_with_layers(program, *config.parallel.stage_layers);
  } else {
    STRATA_TRY_ASSIGN(made.stage_of_region_, balance_stages(region_flops(program), stages));
  }
  const DataParallel copies = data_parallel(config);
  const bool adds_up = copies.sums_in_program();
  made.rank_ = {.axis = static_cast<std::int32_t>(MeshAxis::pp),
                .rank = model_parallel(config).place(MeshAxis::pp),
                .copies_axis = static_cast<std::int32_t>(MeshAxis::dp),
                .copies = adds_up ? copies.ranks : 1,
                .copy = adds_up ? copies.rank : 0};
  return made;
}

Result<Program> ModelPipeline::training(const Program& program) const {
  return pipeline(program, schedule_, stage_of_region_, rank_);
}

Result<Program> ModelPipeline::forward(const Program& program) const {
  STRATA_TRY_ASSIGN(const PipelineSchedule forwards,
                    forward_pipeline(schedule_.ranks(), 1, schedule_.virtual_stages));
  return pipeline(program, forwards, stage_of_region_, rank_);
}

}  // namespace strata
