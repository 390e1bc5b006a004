#pragma once

#include <strata/model/hf/folder.h>

namespace strata {

struct TrainConfig;

/// The parameters of the whole model that a run trained, from those of one of its checkpoints: its adapter is
/// merged, and what it trained in subspaces of gradients is added. Errors: `unsupported` for an adapter that
/// no matrix can take up (check_can_merge()), with what was trained; those of adapter_settings() and
/// subspace_groups().
Result<ParamSource> whole_model(const TrainConfig& config, ParamSource checkpoint);

}  // namespace strata
