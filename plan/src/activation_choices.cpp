#include <strata/plan/activation_choices.h>

#include <strata/config/train_config.h>
#include <strata/runtime/str.h>
#include <strata/config/objective.h>
#include <strata/plan/subspaces.h>

namespace strata {
namespace {

std::vector<Recompute> modes_of(const TrainConfig& config) {
  std::vector<Recompute> modes;
  for (const Recompute mode : kRecomputeModes)
    if (config.train.recompute == "auto" || config.train.recompute == to_string(mode)) modes.push_back(mode);
  return modes;
}

// Tried in this order, so that no more is offloaded than necessary.
std::vector<double> shares_of(const TrainConfig& config) {
  if (config.offload.activation_share) return {*config.offload.activation_share};
  if (config.offload.activations != "auto") return {1.0};
  return {0.25, 0.5, 0.75, 1.0};
}

const char* why(Recompute recompute) {
  return recompute == Recompute::none        ? "all activations fit"
         : recompute == Recompute::selective ? "keeping all activations does not fit"
         : recompute == Recompute::full      ? "keeping the results of GEMMs does not fit"
                                             : "recomputing a whole layer at a time does not fit";
}

}  // namespace

std::vector<ActivationChoice> activation_choices(const TrainConfig& config, bool by_time) {
  const std::string& where = config.offload.activations;
  const std::vector<Recompute> modes = modes_of(config);
  std::vector<ActivationChoice> choices;
  const DataParallel ranks = data_parallel(config);
  const bool several = config.train.grad_accum > ranks.ranks;
  const bool sums = measures_whole_gradients(config);
  const bool breadth_first = (sums || config.offload.micro_batch_order == "breadth_first") && several;
  // One pass over all micro-batches of a rank sums their gradients, which `each` adds one by one.
  const bool may_sum = (ranks.ranks == 1 || ranks.sums_locally()) && model_parallel(config).ranks() == 1;
  const bool either = config.offload.micro_batch_order == "auto" && several && by_time && may_sum && !sums &&
                      objective_of(config).data != RunData::prompts;  // whose steps leave micro-batches out
  if (where == "none" || where == "auto")
    for (const bool layers : {false, true})
      for (const Recompute mode : modes)
        if (either || layers == breadth_first) choices.push_back({mode, 0, false, layers});
  // Activations that are cheap to recompute are recomputed before any are offloaded.
  const auto carries = [&](Recompute mode) {
    return where != "auto" || mode != Recompute::none || modes.size() == 1;
  };
  for (const bool to_nvme : {false, true}) {
    if (where == "none" || where == (to_nvme ? "pinned" : "nvme")) continue;
    if (where == "auto" && to_nvme && config.memory.nvme_bytes == 0) continue;
    for (const Recompute mode : modes)
      for (const double share : shares_of(config))
        if (carries(mode)) choices.push_back({mode, share, to_nvme, breadth_first});
  }
  return choices;
}

void resolve_activations(ConfigTree& tree, const TrainConfig& config, const ActivationChoice& chosen,
                         const std::string& by_forecast) {
  const bool offloaded = chosen.offload_share > 0;
  if (config.train.recompute == "auto")
    tree.resolve("train.recompute", std::string(to_string(chosen.recompute)),
                 by_forecast.empty() ? why(chosen.recompute) : by_forecast);
  if (config.offload.activations == "auto")
    tree.resolve("offload.activations",
                 std::string(chosen.to_nvme ? "nvme"
                             : offloaded    ? "pinned"
                                            : "none"),
                 chosen.to_nvme ? "activations fit neither on the device nor in pinned RAM"
                 : offloaded    ? "activations do not fit on the device"
                                : "activations fit on the device");
  if (config.offload.micro_batch_order == "auto")
    tree.resolve(
        "offload.micro_batch_order", std::string(chosen.breadth_first ? "breadth_first" : "depth_first"),
        config.train.grad_accum == 1       ? "a step has one micro-batch"
        : measures_whole_gradients(config) ? "clipping in subspaces needs the gradient of all micro-batches"
        : by_forecast.empty()              ? "no forecast shows that breadth_first is faster"
                                           : by_forecast);
  if (!config.offload.activation_share)
    tree.resolve("offload.activation_share", chosen.offload_share,
                 config.offload.activations == "auto" ? "the smallest of 0.25, 0.5, 0.75 and 1 that fits"
                 : offloaded                          ? "all that can be offloaded"
                                                      : "nothing is offloaded");
}

}  // namespace strata
