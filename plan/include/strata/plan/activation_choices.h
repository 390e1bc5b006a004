#pragma once

#include <string>
#include <vector>

#include <strata/graph/passes.h>
#include <strata/runtime/config/config.h>

namespace strata {

struct TrainConfig;

/// The handling of the activations that forward produces for backward: backward recomputes some of them, and
/// some are offloaded in the meantime.
struct ActivationChoice {
  Recompute recompute = Recompute::none;
  double offload_share = 0;    ///< share of the offloadable activations that is offloaded; 0: none
  bool to_nvme = false;        ///< activations unused for long move on from pinned RAM to NVMe
  bool breadth_first = false;  ///< interleave_micro_batches(): activations of all micro-batches at once
};

/// The choices that the configuration allows, in the order in which they are tried. For keys that are `auto`
/// the order is: first nothing is offloaded, with as little recomputation as possible. Then activations that
/// are cheap to recompute are recomputed, so that they need not be transferred, and as few of the others as
/// necessary are offloaded, those unused for longest first; recomputing whole blocks as well comes last. If
/// pinned RAM has no room for the offloaded activations either, they move on to NVMe. `by_time`: a forecast
/// compares the choices, and if the order of micro-batches is `auto`, those that offload nothing come in both
/// orders; otherwise `auto` is depth-first.
std::vector<ActivationChoice> activation_choices(const TrainConfig& config, bool by_time);

/// Resolves the keys that are `auto` to the chosen values, with the reasons. `by_forecast`: the reason if a
/// forecast made the choice; if it is empty, the choice was the first that fits.
void resolve_activations(ConfigTree& tree, const TrainConfig& config, const ActivationChoice& chosen,
                         const std::string& by_forecast = {});

}  // namespace strata
