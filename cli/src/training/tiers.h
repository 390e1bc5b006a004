#pragma once

#include <string>

#include <strata/engine/engine.h>

namespace strata::cli {

/// {"device": 1, "pinned": 2, "nvme": null}: an unlimited tier is null.
std::string tiers_json(const TierBytes& bytes);
/// Budget, planned and measured peak of each tier, as a table.
std::string tiers_text(const Engine& engine);

}  // namespace strata::cli
