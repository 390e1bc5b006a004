#pragma once

#include <optional>
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

/// The value of "adapter" of a record: a name; empty if it is null, for no adapter; nullopt if there is none.
/// Errors: `invalid` for a value of another type and an empty name.
Result<std::optional<std::string>> adapter_choice(const nlohmann::json& record);
Result<std::optional<std::string>> adapter_choice(const nlohmann::ordered_json& record);

}  // namespace strata::detail
