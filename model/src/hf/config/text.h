#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include <strata/runtime/status.h>

namespace strata::detail {

/// Parses a config.json, in which Python also writes Infinity, -Infinity and NaN without quotes. Each of them
/// becomes the object {"__float__": name}, as which transformers 5 writes it.
Result<nlohmann::json> parse_config_json(const std::string& text);

}  // namespace strata::detail
