#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include <strata/runtime/status.h>

namespace strata::detail {

/// JSON from a file somebody else wrote: one value, UTF-8 checked, no comments, no NUL, no key twice in an
/// object, nested at most 64 deep. Errors: `corrupt`, with the place.
Result<nlohmann::json> parse_strict_json(const std::string& text);

}  // namespace strata::detail
