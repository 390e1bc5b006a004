#pragma once

#include <cstdint>

#include <strata/runtime/config/config.h>

namespace strata {
struct TrainConfig;
}  // namespace strata

namespace strata::detail {

/// Adds to the sources what keys imply for others that nobody has set, and builds the tree again: what could
/// not be combined otherwise, and what is usual for a model from a folder. Errors: those of
/// ConfigTree::build().
Status add_implied_values(ConfigSources& sources, ConfigTree& tree);

/// The learning rate that a run from a folder implies; 0 if there is none.
double implied_rate(const TrainConfig& config);

/// Chooses between train.steps and train.epochs: the one of the later source counts. Errors: `invalid` if
/// both are from the same.
Status choose_run_length(ConfigSources& sources, ConfigTree& tree);
/// Decides model.seq, train.steps and optim.warmup where they do not depend on data. Errors: `unsupported`
/// for epochs of a run that samples its answers.
Status decide_without_data(ConfigTree& tree);
/// Decides optim.warmup for so many steps, if it is open.
void decide_warmup(ConfigTree& tree, std::int64_t steps);

}  // namespace strata::detail
