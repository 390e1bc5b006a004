#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include <strata/runtime/status.h>

namespace strata::detail {

/// Parses JSON of untrusted files: one value of valid UTF-8, without comments, NULs and duplicate keys of an
/// object, nested at most 64 deep. Errors: `corrupt` with the position.
Result<nlohmann::json> parse_strict_json(const std::string& text);
/// The same with the keys of objects in their order, of which each has at most 4096: finding one takes time
/// in proportion to them.
Result<nlohmann::ordered_json> parse_strict_ordered_json(const std::string& text);

}  // namespace strata::detail
