#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <strata/runtime/status.h>

namespace strata::detail {

/// Formats a value for a message.
std::string shown(const nlohmann::json& value);
std::string shown(const std::string& text);
Status corrupt(std::string message);
Status unsupported(std::string message);

/// Returns a null value if the key is absent, since writers of the format omit optional fields or set them to
/// null.
const nlohmann::json& field(const nlohmann::json& object, const char* key);
/// Whether the value is not null, false, "" or zero.
bool is_set(const nlohmann::json& value);
/// Returns `fallback` if the field is absent. Errors: `corrupt` if it is no boolean.
Result<bool> flag(const nlohmann::json& object, std::string_view where, const char* key, bool fallback);
/// Errors: `unsupported` with the first of the keys that is set.
Status refuse_set(const nlohmann::json& object, std::string_view where,
                  std::initializer_list<const char*> keys);
/// Errors: `unsupported` with the first key that is none of these.
Status refuse_unknown(const nlohmann::json& object, std::string_view where,
                      std::initializer_list<const char*> known);

}  // namespace strata::detail
