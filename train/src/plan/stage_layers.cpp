#include "plan/stage_layers.h"

#include <algorithm>

#include <strata/engine/region_costs.h>
#include <strata/runtime/str.h>
#include <strata/train/activation_choices.h>
#include <strata/train/split/model_pipeline.h>
#include <strata/train/training_data.h>

namespace strata {
namespace detail {
namespace {

bool is_layer(const Region& region) { return region.name.starts_with("layers."); }

}  // namespace

std::vector<std::int32_t> stages_with_layers(const Program& program, std::span<const double> layers) {
  std::vector<std::int32_t> of_layer;
  for (std::size_t stage = 0; stage < layers.size(); ++stage)
    of_layer.insert(of_layer.end(), static_cast<std::size_t>(layers[stage]),
                    static_cast<std::int32_t>(stage));
  std::vector<std::int32_t> stages;
  std::size_t before = 0;
  for (const Region& region : program.regions) {
    if (is_layer(region))
      stages.push_back(of_layer.at(before++));
    else
      stages.push_back(before == 0 ? 0 : static_cast<std::int32_t>(layers.size()) - 1);
  }
  return stages;
}

std::vector<double> layers_of_stages(const Program& program, std::span<const std::int32_t> stage_of_region,
                                     std::int32_t stages) {
  std::vector<double> layers(static_cast<std::size_t>(stages));
  for (std::size_t region = 0; region < program.regions.size(); ++region)
    if (is_layer(program.regions[region])) ++layers[static_cast<std::size_t>(stage_of_region[region])];
  return layers;
}

}  // namespace detail

Status decide_stage_layers(LoadedConfig& loaded, const MachineProfile* profile) {
  TrainConfig& c = loaded.config;
  if (c.parallel.pp == 1 || c.parallel.stage_layers) return {};
  const std::vector<ActivationChoice> choices = activation_choices(c, false);
  STRATA_TRY_ASSIGN(const Program program, record_micro_batch(c, choices.front()));
  STRATA_TRY_ASSIGN(const PipelineSchedule schedule, pipeline_schedule(c));
  const std::vector<double> costs =
      profile == nullptr ? region_flops(program) : region_seconds(program, *profile);
  STRATA_TRY_ASSIGN(const std::vector<std::int32_t> stages, balance_stages(costs, schedule.stages()));
  c.parallel.stage_layers = detail::layers_of_stages(program, stages, schedule.stages());
  loaded.tree.resolve("parallel.stage_layers", *c.parallel.stage_layers,
                      profile == nullptr
                          ? std::string("the slowest stage computes as few flops as possible")
                          : str("the slowest stage takes as little time as possible on ", profile->name));
  return {};
}

}  // namespace strata
