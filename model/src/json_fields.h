#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <strata/runtime/status.h>

namespace strata::detail {

/// A value as messages show it.
std::string shown(const nlohmann::json& value);
std::string shown(const std::string& text);
Status corrupt(std::string message);
Status unsupported(std::string message);

/// Null when absent; the format's writers leave optional fields out or null alike.
const nlohmann::json& field(const nlohmann::json& object, const char* key);
/// Not null, false, "" or zero.
bool is_set(const nlohmann::json& value);
/// Errors: `corrupt` where the field is there and no boolean; `fallback` where it is absent.
Result<bool> flag(const nlohmann::json& object, std::string_view where, const char* key, bool fallback);
/// Errors: `unsupported`, naming the first of the keys that is set.
Status refuse_set(const nlohmann::json& object, std::string_view where,
                  std::initializer_list<const char*> keys);
/// Errors: `unsupported`, naming the first key that is none of these.
Status refuse_unknown(const nlohmann::json& object, std::string_view where,
                      std::initializer_list<const char*> known);

}  // namespace strata::detail
