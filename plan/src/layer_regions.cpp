#include "layer_regions.h"

namespace strata::detail {
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

}  // namespace strata::detail
