#pragma once

#include <string>
#include <string_view>

#include <strata/runtime/config/config.h>

namespace strata::detail {

/// Whether a key was given another value than its default, or given as an argument. The configuration of a
/// run lists all keys, so that a default in a file was not necessarily given.
bool is_given(const ConfigTree& tree, const ConfigEntry& entry);
/// "ORIGIN: KEY", of what sets a key: the beginning of a problem with it.
std::string set_by(const ConfigTree& tree, std::string_view key);

}  // namespace strata::detail
