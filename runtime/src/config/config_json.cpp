// The only library file that includes nlohmann's JSON.
#include <exception>
#include <iterator>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <strata/runtime/config/json_problem.h>
#include <strata/runtime/str.h>

#include "config/config_raw.h"

namespace strata::detail {
namespace {

/// Reads the text and counts lines, since nlohmann's parser does not pass positions to its callbacks. When
/// the callback for a key is called, the parser has consumed exactly the key, so the line is that of the key.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, int* line) : at_(at), line_(line) {}
  const char& operator*() const { return *at_; }
  CountingIterator& operator++() {
    if (*at_ == '\n') ++*line_;
    ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    const CountingIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const CountingIterator& a, const CountingIterator& b) { return a.at_ == b.at_; }

 private:
  const char* at_;
  int* line_;
};

/// Splits { section: { key: value } } into assignments. Uses callbacks rather than a document, because a
/// document silently keeps the last of two equal keys.
class Reader : public nlohmann::json_sax<nlohmann::json> {
 public:
  Reader(std::string_view origin, const int* line, RawLayer& into)
      : origin_(origin), line_(line), into_(into) {}

  bool null() override { return scalar({RawKind::other, "null"}); }
  bool boolean(bool v) override { return scalar({RawKind::boolean, v ? "true" : "false"}); }
  bool number_integer(number_integer_t v) override {
    return scalar({RawKind::integer, fmt::format("{}", v)});
  }
  bool number_unsigned(number_unsigned_t v) override {
    return scalar({RawKind::integer, fmt::format("{}", v)});
  }
  bool number_float(number_float_t v, const string_t&) override {
    return scalar({RawKind::number, fmt::format("{}", v)});
  }
  bool string(string_t& v) override { return scalar({RawKind::text, v}); }
  bool binary(binary_t&) override { return scalar({RawKind::other, "binary data"}); }

  bool key(string_t& name) override {
    if (depth_ == 1) {
      section_ = name;
      section_origin_ = here();
      keys_in_section_ = 0;
    } else if (depth_ == 2) {
      ++keys_in_section_;
      if (!seen_.emplace(section_, name).second) problem(str(section_, ".", name, " is given twice"));
      current_ = {section_, name, {}, here()};
    }
    return true;
  }
  bool start_object(std::size_t) override {
    if (depth_ == 2) other("a table");
    ++depth_;
    return true;
  }
  bool end_object() override {
    --depth_;
    if (depth_ == 1 && lists_ == 0 && keys_in_section_ == 0)
      into_.assignments.push_back({section_, "", {}, section_origin_});
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ == 2 && lists_ == 0)
      current_.value.is_list = true;
    else if (depth_ == 2)
      current_.value.items.push_back({RawKind::other, "a list"});
    else if (depth_ < 2)
      outside();
    ++lists_;
    return true;
  }
  bool end_array() override {
    if (--lists_ == 0 && depth_ == 2) into_.assignments.push_back(std::exchange(current_, {}));
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error) override {
    // nlohmann: "[json.exception.parse_error.101] parse error at line 2, column 5: syntax error while ..."
    std::string_view text = error.what();
    if (const auto at = text.find(": "); at != text.npos) text.remove_prefix(at + 2);
    into_.problems.push_back(str(origin_, ":", *line_, ": not JSON: ", text));
    return false;
  }

 private:
  bool scalar(RawScalar value) {
    if (depth_ > 2) return true;  // inside a table that was already refused as a whole
    if (depth_ < 2) {
      outside();
      return true;
    }
    current_.value.items.push_back(std::move(value));
    if (lists_ == 0) into_.assignments.push_back(std::exchange(current_, {}));
    return true;
  }
  void other(std::string what) { scalar({RawKind::other, std::move(what)}); }
  void outside() {
    if (lists_ > 0) return;
    problem(depth_ == 0
                ? std::string("the file must be a JSON object of sections")
                : str("'", section_, "' is outside a section; write it as {\"model\": {\"key\": value}}"));
    keys_in_section_ = 1;
  }
  void problem(std::string_view text) { into_.problems.push_back(str(here(), ": ", text)); }
  std::string here() const { return str(origin_, ":", *line_); }

  std::string_view origin_;
  const int* line_;
  RawLayer& into_;
  std::set<std::pair<std::string, std::string>> seen_;
  RawAssignment current_;
  std::string section_, section_origin_;
  int keys_in_section_ = 0;
  int depth_ = 0;  // number of enclosing objects
  int lists_ = 0;  // number of enclosing lists
};

}  // namespace

void read_json(std::string_view text, std::string_view origin, RawLayer& into) {
  try {
    int line = 1;
    Reader reader(origin, &line, into);
    const CountingIterator begin(text.data(), &line), end(text.data() + text.size(), &line);
    // Errors are already in `problems`; the return value adds nothing.
    static_cast<void>(nlohmann::json::sax_parse(begin, end, &reader));
  } catch (const std::exception& error) {  // bad_alloc, and exceptions that nlohmann does not report to its
                                           // callbacks
    into.problems.push_back(str(origin, ": ", json_problem(error.what())));
  }
}

}  // namespace strata::detail
