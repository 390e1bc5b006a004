#pragma once

#include <string>
#include <vector>

#include <strata/runtime/config/config.h>

namespace strata {
struct TrainConfig;
}  // namespace strata

namespace strata::detail {

/// The problems of optim.name = galore: what it cannot be combined with, and its keys if they were given to
/// another optimizer. `trains`: whether the model is trained.
void check_galore(const ConfigTree& tree, const TrainConfig& config, bool trains,
                  std::vector<std::string>& problems);

}  // namespace strata::detail
