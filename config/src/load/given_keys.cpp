#include <strata/config/given_keys.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/runtime/str.h>

namespace strata::detail {

bool is_given(const ConfigTree& tree, const ConfigEntry& entry) {
  if (entry.origin == "default" || entry.origin.starts_with("argument ")) return entry.origin != "default";
  const std::string key = str(entry.spec->section, ".", entry.spec->name);
  if (entry.spec->type == KeyType::number_list)
    return !tree.numbers(key).empty();  // the default of all of them
  if (entry.spec->type != KeyType::text_list) return entry.raw != entry.spec->default_text;
  const auto& texts = tree.texts(key);
  return fmt::format("{}", fmt::join(texts, ",")) != entry.spec->default_text;
}

std::string set_by(const ConfigTree& tree, std::string_view key) {
  return str(tree.entry(key).origin, ": ", key);
}

}  // namespace strata::detail
