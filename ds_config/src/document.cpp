#include "document.h"

#include <algorithm>
#include <utility>

#include <strata/runtime/str.h>

#include "other_names.h"

namespace strata::detail {
namespace {

bool contains_auto(const Json& value) {
  if (is_auto_text(value)) return true;
  if (!value.is_object()) return false;
  for (const auto& [key, inner] : value.items())
    if (contains_auto(inner)) return true;
  return false;
}

const Json* at_path(const Json& root, std::string_view path) {
  const Json* at = &root;
  while (!path.empty()) {
    const std::size_t dot = std::min(path.find('.'), path.size());
    if (!at->is_object()) return nullptr;
    const auto found = at->find(std::string(path.substr(0, dot)));
    if (found == at->end()) return nullptr;
    at = &*found;
    path.remove_prefix(std::min(dot + 1, path.size()));
  }
  return at->is_null() ? nullptr : at;
}

}  // namespace

Document::Document(JsonTree<Json> tree) : tree_(std::move(tree)), has_autos_(contains_auto(root())) {}

Result<Document> Document::parse(std::string_view text) {
  JsonTree<Json> tree;
  const std::string problem = tree.read(text, true);
  if (!problem.empty())
    return Status::error(Code::invalid,
                         problem.starts_with("parse error") ? str("not JSON: ", problem) : problem);
  if (!tree.root.is_object())
    return Status::error(Code::invalid, "a configuration of DeepSpeed is one JSON object");
  return Document(std::move(tree));
}

const Json* Document::find(std::string_view key) const {
  if (const Json* const found = at_path(root(), key)) return found;
  for (const OtherName& other : other_names())
    if (key == other.key || is_below(key, other.key))
      if (const Json* const found = at_path(root(), str(other.name, key.substr(other.key.size()))))
        return found;
  return nullptr;
}

const Json* Document::value(std::string_view key) const {
  const Json* const found = find(key);
  return found == nullptr || is_auto_text(*found) ? nullptr : found;
}

bool Document::is_true(std::string_view key) const {
  const Json* const found = find(key);
  return found != nullptr && *found == true;
}

double Document::number(std::string_view key, double otherwise) const {
  const Json* const found = find(key);
  return found != nullptr && found->is_number() ? found->get<double>() : otherwise;
}

}  // namespace strata::detail
