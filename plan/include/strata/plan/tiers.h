#pragma once

#include <string>

#include <strata/engine/engine.h>

namespace strata {

/// {"device": 1, "pinned": 2, "nvme": null}; null: the tier is unlimited.
std::string tiers_json(const TierBytes& bytes);
/// A table of the budget, planned peak and measured peak of each tier.
std::string tiers_text(const TierBytes& budgets, const TierBytes& planned, const TierBytes& measured);
std::string tiers_text(const Engine& engine);

}  // namespace strata
