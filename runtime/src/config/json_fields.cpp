#include <strata/runtime/config/json_fields.h>

#include <algorithm>
#include <utility>

#include <strata/runtime/str.h>

namespace strata::detail {

using nlohmann::json;

std::string shown(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 80);
}
std::string shown(const std::string& text) { return str("'", text.substr(0, 80), "'"); }
Status corrupt(std::string message) { return Status::error(Code::corrupt, std::move(message)); }
Status unsupported(std::string message) { return Status::error(Code::unsupported, std::move(message)); }

const json& field(const json& object, const char* key) {
  static const json none;
  const auto at = object.find(key);
  return at == object.end() ? none : *at;
}

bool is_set(const json& value) {
  return !value.is_null() && value != json(false) && value != json("") && value != json(0.0);
}

Result<bool> flag(const json& object, std::string_view where, const char* key, bool fallback) {
  const json& value = field(object, key);
  if (value.is_null()) return fallback;
  if (!value.is_boolean()) return corrupt(str(where, key, " is ", shown(value), ", not true or false"));
  return value.get<bool>();
}

Status refuse_set(const json& object, std::string_view where, std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    if (is_set(field(object, key)))
      return unsupported(str(where, key, " = ", shown(field(object, key)), " is not supported"));
  return {};
}

Status refuse_unknown(const json& object, std::string_view where, std::initializer_list<const char*> known) {
  for (const auto& [key, value] : object.items())
    if (std::find(known.begin(), known.end(), key) == known.end())
      return unsupported(str(where, key.substr(0, 80), " = ", shown(value), " is not supported"));
  return {};
}

}  // namespace strata::detail
