#pragma once

#include <strata/runtime/config/config.h>

namespace strata::detail {

/// Adds to the sources what one key implies for others that nobody has set, and builds the tree again: with
/// another value the two could not be combined. Errors: those of ConfigTree::build().
Status add_implied_values(ConfigSources& sources, ConfigTree& tree);

}  // namespace strata::detail
