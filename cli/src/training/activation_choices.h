#pragma once

#include <string>
#include <vector>

#include <strata/graph/passes.h>
#include <strata/runtime/config.h>

#include "train_config.h"

namespace strata::cli {

/// What a run does with what forward leaves for backward: some of it is made again, some is away meanwhile.
struct ActivationChoice {
  Recompute recompute = Recompute::none;
  double offload_share = 0;    ///< of what may leave the device; 0: all stays
  bool to_nvme = false;        ///< what is away for long goes on from pinned RAM
  bool breadth_first = false;  ///< interleave_micro_batches(): that of all micro-batches at once
};

/// Those that the configuration allows, in the order in which they are tried. What is `auto` is left as it
/// was while that fits: first nothing leaves, with as little made again as possible. Then, with what is cheap
/// to make again made again, so that it need not be carried, as few as needed leave, longest unread first;
/// whole blocks are made again beside that last. Where pinned RAM has no room for it either, it goes on to
/// nvme. Where they are judged by time, so is the order of micro-batches if that is `auto`; else it is
/// theirs.
std::vector<ActivationChoice> activation_choices(const TrainConfig& config, bool by_time);

/// Writes what was chosen and why over the keys that are `auto`. `by_forecast` is the reason for what is made
/// again where a forecast chose it; else it is that nothing less fits.
void resolve_activations(ConfigTree& tree, const TrainConfig& config, const ActivationChoice& chosen,
                         const std::string& by_forecast = {});

}  // namespace strata::cli
