#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <strata/runtime/config/json_tree.h>
#include <strata/runtime/status.h>

namespace strata::detail {

using Json = nlohmann::ordered_json;

/// A configuration of DeepSpeed. Keys are asked for by the names of the table.
class Document {
 public:
  /// Errors: `invalid`.
  static Result<Document> parse(std::string_view text);

  const Json& root() const noexcept { return tree_.root; }
  /// The value of a key, also if it was written by another of its names; nullptr if it is absent or null.
  const Json* find(std::string_view key) const;
  /// The same, but nullptr also if it is "auto".
  const Json* value(std::string_view key) const;
  bool is_auto(std::string_view key) const { return find(key) != nullptr && value(key) == nullptr; }
  bool is_true(std::string_view key) const;
  /// The number of a key; `otherwise` if it has none.
  double number(std::string_view key, double otherwise) const;
  /// Whether any value is "auto", as in files for the Hugging Face Trainer.
  bool has_autos() const noexcept { return has_autos_; }

 private:
  explicit Document(JsonTree<Json> tree);

  JsonTree<Json> tree_;
  bool has_autos_ = false;
};

/// nlohmann's == with a literal allocates, and ends the program if that fails.
inline bool is_text(const Json& value, std::string_view text) {
  return value.is_string() && value.get_ref<const std::string&>() == text;
}
inline bool is_auto_text(const Json& value) { return is_text(value, "auto"); }

}  // namespace strata::detail
