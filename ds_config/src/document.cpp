#include "document.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include <strata/runtime/str.h>

#include "other_names.h"

namespace strata::detail {
namespace {

constexpr int kMaxDepth = 64;

/// Finds what nlohmann's parser accepts and we do not: equal keys, and a depth that would exhaust the stack.
class Checker {
 public:
  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    using Event = Json::parse_event_t;
    if (depth > kMaxDepth) {
      problem_ = str("it is nested more than ", kMaxDepth, " deep");
      return false;
    }
    if (event == Event::object_start) keys_.emplace_back();
    if (event == Event::object_end) keys_.pop_back();
    if (event == Event::key && !keys_.back().insert(parsed.get<std::string>()).second)
      problem_ = str("the key '", parsed.get<std::string>(), "' is there twice");
    return true;
  }
  const std::string& problem() const noexcept { return problem_; }

 private:
  std::vector<std::set<std::string>> keys_;
  std::string problem_;
};

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

Document::Document(Json root) : root_(std::move(root)), has_autos_(contains_auto(root_)) {}

Result<Document> Document::parse(std::string_view text) {
  Checker checker;
  Json root;
  try {
    root = Json::parse(text, std::ref(checker), true, true);
  } catch (const Json::exception& error) {
    // nlohmann: "[json.exception.parse_error.101] parse error at line 2, column 5: syntax error while ..."
    std::string_view what = error.what();
    if (const auto at = what.find("] "); at != what.npos) what.remove_prefix(at + 2);
    return Status::error(Code::invalid, str("not JSON: ", what));
  }
  if (!checker.problem().empty()) return Status::error(Code::invalid, checker.problem());
  if (!root.is_object())
    return Status::error(Code::invalid, "a configuration of DeepSpeed is one JSON object");
  return Document(std::move(root));
}

const Json* Document::find(std::string_view key) const {
  if (const Json* const found = at_path(root_, key)) return found;
  for (const OtherName& other : other_names())
    if (key == other.key || is_below(key, other.key))
      if (const Json* const found = at_path(root_, str(other.name, key.substr(other.key.size()))))
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
