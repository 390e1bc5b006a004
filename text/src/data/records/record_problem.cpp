#include "data/records/record_problem.h"

#include <algorithm>
#include <utility>

#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

constexpr std::size_t kShown = 80;  // bytes of a user's text in a message

}  // namespace

std::string shown_text(std::string_view text) {
  std::string out(text.substr(0, kShown));
  for (char& c : out)
    if (c < ' ' || c > '~') c = '?';
  return text.size() > kShown ? out + "..." : out;
}

std::string keys_of(const RecordJson& record) {
  std::string names;
  for (const auto& [key, value] : record.items()) {
    names += str(names.empty() ? "" : ", ", key);
    if (names.size() > kShown) break;
  }
  return names.empty() ? "it has no key" : str("its keys: ", shown_text(names));
}

std::string kind_of(const RecordJson& value) {
  const std::string_view name = value.type_name();
  return str(name == "object" || name == "array" ? "an " : name == "null" ? "" : "a ", name);
}

Outcome string_at(const RecordJson& object, const char* key, bool may_be_empty, const std::string*& found) {
  const auto it = object.find(key);
  if (it == object.end()) return Problem{str("no ", key), str("no '", key, "'; ", keys_of(object))};
  if (!it->is_string()) return Problem{key, str("'", key, "' must be a string, not ", kind_of(*it))};
  found = it->get_ptr<const std::string*>();
  if (found->empty() && !may_be_empty) return Problem{str("empty ", key), str("'", key, "' is empty")};
  return {};
}

Outcome optional_string_at(const RecordJson& object, const char* key, std::string& into) {
  const auto it = object.find(key);
  into.clear();
  if (it == object.end() || it->is_null()) return {};
  const std::string* found = nullptr;
  if (Outcome problem = string_at(object, key, true, found)) return problem;
  into = *found;
  return {};
}

void ProblemsByKind::add(const std::string& where, Problem problem, std::uint64_t n) {
  const auto same = std::find_if(found_.begin(), found_.end(),
                                 [&](const Found& f) { return f.first.kind == problem.kind; });
  if (same != found_.end())
    same->others += n;
  else
    found_.push_back({where, std::move(problem), n - 1});
}

Status ProblemsByKind::status(const std::string& path) const {
  std::string text;
  for (const Found& f : found_)
    text += str(text.empty() ? "" : "\n", path, ": ", f.where, ": ", f.first.message,
                f.others > 0 ? str(" (and ", f.others, " more)") : "");
  return Status::error(Code::invalid, text);
}

}  // namespace strata::detail
