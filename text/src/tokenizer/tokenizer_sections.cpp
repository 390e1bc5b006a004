#include "tokenizer/tokenizer_sections.h"

#include <strata/runtime/str.h>

#include <strata/runtime/config/json_fields.h>

namespace strata::detail {

using nlohmann::json;

std::string type_of(const json& part) {
  return part.is_object() && field(part, "type").is_string() ? field(part, "type").get<std::string>() : "";
}
Status wrong_kind(std::string_view where, const json& part, std::string_view supported) {
  return unsupported(str(where, " is ", shown(part), ", only ", supported, " is supported"));
}
Result<std::vector<json>> parts_of(const json& part, std::string_view where, const char* list) {
  if (part.is_null()) return std::vector<json>{};
  if (type_of(part) != "Sequence") return std::vector<json>{part};
  STRATA_TRY(refuse_unknown(part, str(where, "."), {"type", list}));
  const json& parts = field(part, list);
  if (!parts.is_array()) return corrupt(str(where, ".", list, " is ", shown(parts), ", not a list"));
  return parts.get<std::vector<json>>();
}

}  // namespace strata::detail
