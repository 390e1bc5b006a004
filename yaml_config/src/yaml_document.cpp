#include "yaml_document.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <utility>

#include <yaml.h>

#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

constexpr int kMaxDepth = 64;
constexpr int kMaxValues = 100000;  // aliases would otherwise multiply a small file

std::string text_of(const yaml_char_t* text, std::size_t size) {
  return {reinterpret_cast<const char*>(text), size};
}

/// The value of a scalar without quotes.
Json plain_value(const std::string& text) {
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return nullptr;
  for (const char* yes : {"true", "True", "TRUE", "yes", "Yes", "on", "On"})
    if (text == yes) return true;
  for (const char* no : {"false", "False", "FALSE", "no", "No", "off", "Off"})
    if (text == no) return false;
  const char* const begin = text.data() + (text.front() == '+' ? 1 : 0);
  const char* const end = text.data() + text.size();
  std::int64_t integer = 0;
  if (const auto read = std::from_chars(begin, end, integer); read.ec == std::errc() && read.ptr == end)
    return integer;
  double number = 0;
  // Not inf and nan, which from_chars also reads.
  const bool is_numeric = text.find_first_not_of("+-.0123456789eE") == std::string::npos;
  if (const auto read = std::from_chars(begin, end, number);
      is_numeric && read.ec == std::errc() && read.ptr == end)
    return number;
  return text;
}

class Parser {
 public:
  explicit Parser(std::string_view text) {
    yaml_parser_initialize(&parser_);
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  }
  ~Parser() {
    yaml_event_delete(&event_);
    yaml_parser_delete(&parser_);
  }
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;

  Result<Json> read() {
    STRATA_TRY(next());  // the stream begins
    STRATA_TRY(next());
    if (event_.type == YAML_STREAM_END_EVENT) return at("the file is empty");
    STRATA_TRY(next());  // behind the document's begin
    Json root;
    STRATA_TRY(value(root, 0));
    STRATA_TRY(next());  // the document ends
    STRATA_TRY(next());
    if (event_.type != YAML_STREAM_END_EVENT) return at("a second document");
    if (!root.is_object()) return at("the file is no mapping of keys to values");
    return root;
  }

 private:
  Status next() {
    yaml_event_delete(&event_);
    if (yaml_parser_parse(&parser_, &event_) != 0) return {};
    return Status::error(Code::invalid, str("line ", parser_.problem_mark.line + 1, ": ",
                                            parser_.problem != nullptr ? parser_.problem : "no YAML"));
  }
  Status at(const std::string& what) const {
    return Status::error(Code::invalid, str("line ", event_.start_mark.line + 1, ": ", what));
  }

  /// The value that the present event begins; afterwards its last event is the present one.
  Status value(Json& into, int depth) {
    if (depth > kMaxDepth) return at(str("nested deeper than ", kMaxDepth));
    if (++n_values_ > kMaxValues) return at(str("more than ", kMaxValues, " values"));
    if (event_.type == YAML_ALIAS_EVENT) return alias(into, depth);
    std::string anchor;
    STRATA_TRY(anchor_of(anchor));
    const int outer = std::exchange(deepest_, depth), n_before = n_values_;
    if (event_.type == YAML_SCALAR_EVENT) {
      const auto& scalar = event_.data.scalar;
      const std::string text = text_of(scalar.value, scalar.length);
      into = scalar.style == YAML_PLAIN_SCALAR_STYLE ? plain_value(text) : Json(text);
    } else {
      STRATA_TRY(event_.type == YAML_SEQUENCE_START_EVENT ? sequence(into, depth) : mapping(into, depth));
    }
    if (!anchor.empty()) anchors_[anchor] = {into, deepest_ - depth, n_values_ - n_before};
    deepest_ = std::max(deepest_, outer);
    return {};
  }

  Status alias(Json& into, int depth) {
    const auto* const name = reinterpret_cast<const char*>(event_.data.alias.anchor);
    const auto found = anchors_.find(name);
    if (found == anchors_.end()) return at(str("*", name, " has no anchor before it"));
    const Anchored& anchored = found->second;
    if (depth + anchored.depth > kMaxDepth)
      return at(str("*", name, " is nested ", anchored.depth, " deep at depth ", depth, "; at most ",
                    kMaxDepth, " are read"));
    n_values_ += anchored.n_values;
    if (n_values_ > kMaxValues) return at(str("more than ", kMaxValues, " values"));
    deepest_ = std::max(deepest_, depth + anchored.depth);
    into = anchored.value;
    return {};
  }

  Status anchor_of(std::string& into) const {
    const yaml_char_t *anchor = nullptr, *tag = nullptr;
    if (event_.type == YAML_SCALAR_EVENT) {
      anchor = event_.data.scalar.anchor;
      tag = event_.data.scalar.tag;
    } else if (event_.type == YAML_SEQUENCE_START_EVENT) {
      anchor = event_.data.sequence_start.anchor;
      tag = event_.data.sequence_start.tag;
    } else {
      anchor = event_.data.mapping_start.anchor;
      tag = event_.data.mapping_start.tag;
    }
    if (tag != nullptr) return at(str("the tag ", reinterpret_cast<const char*>(tag), " is not supported"));
    if (anchor != nullptr) into = reinterpret_cast<const char*>(anchor);
    return {};
  }

  Status sequence(Json& into, int depth) {
    into = Json::array();
    STRATA_TRY(next());
    while (event_.type != YAML_SEQUENCE_END_EVENT) {
      STRATA_TRY(value(into.emplace_back(), depth + 1));
      STRATA_TRY(next());
    }
    return {};
  }

  Status mapping(Json& into, int depth) {
    into = Json::object();
    STRATA_TRY(next());
    while (event_.type != YAML_MAPPING_END_EVENT) {
      if (event_.type != YAML_SCALAR_EVENT) return at("a key that is no text");
      const std::string key = text_of(event_.data.scalar.value, event_.data.scalar.length);
      if (key == "<<") return at("merge keys (<<) are not supported; write the keys out");
      if (into.contains(key)) return at(str("the key '", key.substr(0, 80), "' is there twice"));
      STRATA_TRY(next());
      STRATA_TRY(value(into[key], depth + 1));
      STRATA_TRY(next());
    }
    return {};
  }

  struct Anchored {
    Json value;
    int depth = 0, n_values = 0;  // describe what is inside
  };

  yaml_parser_t parser_{};
  yaml_event_t event_{};
  std::map<std::string, Anchored> anchors_;
  int n_values_ = 0, deepest_ = 0;
};

}  // namespace

Result<Json> parse_yaml(std::string_view text) { return Parser(text).read(); }

}  // namespace strata::detail
