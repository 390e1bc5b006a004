#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

#include <strata/runtime/status.h>

namespace strata::detail {

using Json = nlohmann::ordered_json;

/// A YAML document as JSON, its scalars as YAML's core schema has them (and yes, no, on and off, as
/// YAML 1.1). Errors: `invalid` with the line: what is not YAML, two documents, a key twice, merge keys,
/// tags, and more than 100,000 values or 64 levels.
Result<Json> parse_yaml(std::string_view text);

}  // namespace strata::detail
