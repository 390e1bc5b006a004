#include "hf/config/text.h"

#include <array>
#include <string_view>

#include <strata/runtime/config/strict_json.h>
#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

constexpr std::array<std::string_view, 3> kUnquotedNames = {"-Infinity", "Infinity", "NaN"};

std::string_view unquoted_name_at(std::string_view text) {
  for (const std::string_view name : kUnquotedNames)
    if (text.starts_with(name)) return name;
  return {};
}

}  // namespace

Result<nlohmann::json> parse_config_json(const std::string& text) {
  std::string quoted;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string && c == '\\' && i + 1 < text.size()) {
      quoted += text.substr(i++, 2);
      continue;
    }
    if (c == '"') in_string = !in_string;
    const std::string_view name =
        in_string ? std::string_view{} : unquoted_name_at(std::string_view(text).substr(i));
    if (name.empty()) {
      quoted += c;
      continue;
    }
    quoted += str("{\"__float__\": \"", name, "\"}");
    i += name.size() - 1;
  }
  return parse_strict_json(quoted);
}

}  // namespace strata::detail
