#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/runtime/status.h>

namespace strata {

/// For each name the index of the first shell pattern (fnmatch) that matches it, or -1. Errors: `invalid`,
/// listing every pattern that matches none of the names, with the nearest ones; `key` names the setting.
Result<std::vector<std::int32_t>> match_names(std::span<const std::string> names,
                                              std::span<const std::string> patterns, std::string_view key);

}  // namespace strata
