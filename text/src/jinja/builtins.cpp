// Global functions, and the methods of Python's texts, lists and mappings that chat templates call.
#include <algorithm>
#include <ctime>
#include <span>

#include <strata/runtime/str.h>

#include "jinja/evaluator.h"

namespace strata::detail::jinja {
namespace {

constexpr std::size_t kMaxRange = 100000;  // as in Jinja's sandbox

using Method = Value (*)(Evaluator&, const Value&, const Arguments&);

std::string chars_of(const Arguments& arguments) {
  const Value* of = arguments.get(0, "chars");
  return of != nullptr && of->text() != nullptr ? of->text()->bytes() : std::string();
}

template <bool kLeft, bool kRight>
Value strip(Evaluator&, const Value& self, const Arguments& arguments) {
  return Value(stripped(*self.text(), kLeft, kRight, chars_of(arguments)));
}

/// The words of a text, at most `limit` + 1 unless it is negative; the last one is then the rest.
List split_at_spaces(const Text& text, std::int64_t limit) {
  List out;
  const std::vector<std::size_t> at = character_offsets(text.bytes());
  const std::size_t n = at.size() - 1;
  const auto is_space = [&](std::size_t i) {
    return stripped(text.slice(at[i], at[i + 1]), true, true).empty();
  };
  for (std::size_t i = 0; i < n;) {
    while (i < n && is_space(i)) ++i;
    const std::size_t begin = i;
    while (i < n && (limit == 0 || !is_space(i))) ++i;
    if (begin < i) out.emplace_back(text.slice(at[begin], at[i]));
    if (limit > 0) --limit;
  }
  return out;
}

template <bool kFromRight>
Value split(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const Text& text = *self.text();
  const Value *by = arguments.get(0, "sep"), *most = arguments.get(1, "maxsplit");
  std::int64_t limit = most != nullptr && most->is_integer() ? most->integer() : -1;
  if (!evaluator.spend(text.size())) return {};
  const bool at_spaces = by == nullptr || by->is_none();
  if (at_spaces && kFromRight && limit >= 0)
    return evaluator.fail("'rsplit' at white space with a limit is not supported", Code::unsupported);
  if (at_spaces) return Value(split_at_spaces(text, limit));
  if (by->text() == nullptr || by->text()->empty())
    return evaluator.fail("'split' needs a text that is not empty");
  const std::string& separator = by->text()->bytes();
  List out;
  std::size_t begin = 0, end = text.size();
  for (; limit != 0; --limit) {
    const std::size_t found =
        kFromRight ? (end < separator.size() ? std::string::npos
                                             : text.bytes().rfind(separator, end - separator.size()))
                   : text.bytes().find(separator, begin);
    if (found == std::string::npos) break;
    if (kFromRight) {
      out.emplace_back(text.slice(found + separator.size(), end));
      end = found;
    } else {
      out.emplace_back(text.slice(begin, found));
      begin = found + separator.size();
    }
  }
  out.emplace_back(text.slice(begin, end));
  if (kFromRight) std::reverse(out.begin(), out.end());
  evaluator.spend(out.size());
  return Value(std::move(out));
}

Value splitlines(Evaluator&, const Value& self, const Arguments& arguments) {
  const Value* keep = arguments.get(0, "keepends");
  const bool keeps = keep != nullptr && keep->truth();
  const Text& text = *self.text();
  List out;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = std::min(text.bytes().find_first_of("\n\r", begin), text.size());
    const std::size_t next =
        end == text.size() ? end : end + (text.bytes().compare(end, 2, "\r\n") == 0 ? 2 : 1);
    out.emplace_back(text.slice(begin, keeps ? next : end));
    begin = next;
  }
  return Value(std::move(out));
}

template <bool kAtEnd>
Value has_affix(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const auto has = [&](const Value& affix) {
    if (affix.text() == nullptr) return false;
    const std::string& bytes = self.text()->bytes();
    return kAtEnd ? bytes.ends_with(affix.text()->bytes()) : bytes.starts_with(affix.text()->bytes());
  };
  if (arguments.values.empty()) return evaluator.fail("'startswith' and 'endswith' need a text");
  const Value& affix = arguments.values[0];
  if (affix.list() != nullptr) return Value(std::any_of(affix.list()->begin(), affix.list()->end(), has));
  return Value(has(affix));
}

template <bool kAtEnd>
Value without_affix(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  if (has_affix<kAtEnd>(evaluator, self, arguments).truth()) {
    const std::size_t n = self.text()->size(),
                      k = arguments.values[0].text() != nullptr ? arguments.values[0].text()->size() : 0;
    return Value(self.text()->slice(kAtEnd ? 0 : k, kAtEnd ? n - k : n));
  }
  return self;
}

template <bool kFromRight>
Value find(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  if (arguments.values.empty() || arguments.values[0].text() == nullptr)
    return evaluator.fail("'find' needs a text");
  const std::string &bytes = self.text()->bytes(), &wanted = arguments.values[0].text()->bytes();
  const std::size_t at = kFromRight ? bytes.rfind(wanted) : bytes.find(wanted);
  if (at == std::string::npos) return Value(std::int64_t{-1});
  return Value::size(character_offsets(std::string_view(bytes).substr(0, at)).size() - 1);
}

Value count(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  if (arguments.values.empty() || arguments.values[0].text() == nullptr)
    return evaluator.fail("'count' needs a text");
  const std::string &bytes = self.text()->bytes(), &wanted = arguments.values[0].text()->bytes();
  if (wanted.empty()) return Value::size(character_offsets(bytes).size());
  std::int64_t n = 0;
  for (std::size_t at = bytes.find(wanted); at != std::string::npos;
       at = bytes.find(wanted, at + wanted.size()))
    ++n;
  return Value(n);
}

Value all_digits(Evaluator&, const Value& self, const Arguments&) {
  const std::string& bytes = self.text()->bytes();
  return Value(!bytes.empty() && bytes.find_first_not_of("0123456789") == std::string::npos);
}

template <const char* kFilter>
Value by_filter(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  return evaluator.apply_filter(kFilter, self, arguments);
}
constexpr char kUpper[] = "upper", kLower[] = "lower", kTitle[] = "title", kCapitalize[] = "capitalize",
               kReplace[] = "replace", kItems[] = "items", kList[] = "list";

Value join(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  if (arguments.values.empty()) return evaluator.fail("'join' needs a list");
  return evaluator.apply_filter("join", arguments.values[0], {{self}, {}});
}

Value get(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  if (arguments.values.empty()) return evaluator.fail("'get' needs a key");
  const Text* key = arguments.values[0].text();
  if (const Value* found = key == nullptr ? nullptr : self.find(key->bytes())) return *found;
  const Value* otherwise = arguments.get(1, "default");
  return otherwise == nullptr ? Value(None{}) : *otherwise;
}

Value values(Evaluator&, const Value& self, const Arguments&) {
  List out;
  for (const auto& [key, value] : *self.dict()) out.push_back(value);
  return Value(std::move(out));
}

Value index(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  if (arguments.values.empty()) return evaluator.fail("'index' needs a value");
  for (std::size_t i = 0; i < self.list()->size(); ++i)
    if (equal((*self.list())[i], arguments.values[0])) return Value::size(i);
  return evaluator.fail("'index' of a value that is not in the list");
}

struct MethodRow {
  std::string_view name;
  Method call;
  Takes taken = {};
};
constexpr MethodRow kTextMethods[] = {
    {"strip", strip<true, true>, {1}},
    {"lstrip", strip<true, false>, {1}},
    {"rstrip", strip<false, true>, {1}},
    {"split", split<false>, {2, "sep maxsplit"}},
    {"rsplit", split<true>, {2, "sep maxsplit"}},
    {"splitlines", splitlines, {1, "keepends"}},
    {"startswith", has_affix<false>, {1}},
    {"endswith", has_affix<true>, {1}},
    {"removeprefix", without_affix<false>, {1}},
    {"removesuffix", without_affix<true>, {1}},
    {"find", find<false>, {1}},
    {"rfind", find<true>, {1}},
    {"count", count, {1}},
    {"isdigit", all_digits},
    {"upper", by_filter<kUpper>},
    {"lower", by_filter<kLower>},
    {"title", by_filter<kTitle>},
    {"capitalize", by_filter<kCapitalize>},
    {"replace", by_filter<kReplace>, {3, "count"}},
    {"join", join, {1}},
};
constexpr MethodRow kDictMethods[] = {
    {"get", get, {2}}, {"items", by_filter<kItems>}, {"keys", by_filter<kList>}, {"values", values}};
constexpr MethodRow kListMethods[] = {{"index", index, {1}}};

std::span<const MethodRow> methods_of(const Value& self) noexcept {
  if (self.text() != nullptr) return kTextMethods;
  if (self.list() != nullptr) return kListMethods;
  if (self.dict() != nullptr && self.changeable() == nullptr) return kDictMethods;
  return {};
}

Value range(Evaluator& evaluator, const Value&, const Arguments& arguments) {
  std::int64_t at[3] = {0, 0, 1};
  const std::size_t n = arguments.values.size();
  if (n < 1 || n > 3) return evaluator.fail("'range' takes one to three numbers");
  for (std::size_t i = 0; i < n; ++i) {
    if (!arguments.values[i].is_integer())
      return evaluator.fail(str("'range' of ", arguments.values[i].kind()));
    at[n == 1 ? 1 : i] = arguments.values[i].integer();
  }
  constexpr std::int64_t kFar = std::int64_t{1} << 40;
  if (at[2] == 0 || std::any_of(at, at + 3, [](std::int64_t i) { return i > kFar || i < -kFar; }))
    return evaluator.fail("'range' with a step of 0, or of numbers that are too large");
  List out;
  for (std::int64_t i = at[0]; at[2] > 0 ? i < at[1] : i > at[1]; i += at[2]) {
    if (out.size() == kMaxRange) return evaluator.fail(str("'range' of more than ", kMaxRange, " numbers"));
    out.emplace_back(i);
  }
  return evaluator.spend(out.size()) ? Value(std::move(out)) : Value();
}

Value new_namespace(Evaluator& evaluator, const Value&, const Arguments& arguments) {
  Dict dict = arguments.values.empty() || arguments.values[0].dict() == nullptr ? Dict()
                                                                                : *arguments.values[0].dict();
  for (const auto& entry : arguments.named) dict.push_back(entry);
  for (const auto& [name, value] : dict)
    if (value.nesting >= kMaxNesting) return evaluator.fail("a namespace would hold a namespace");
  return Value::new_namespace(std::move(dict));
}

Value new_dict(Evaluator&, const Value&, const Arguments& arguments) { return Value(Dict(arguments.named)); }

Value refuse(Evaluator& evaluator, const Value&, const Arguments& arguments) {
  const Text why = arguments.values.empty() ? Text("it is refused") : printed(arguments.values[0]);
  return evaluator.fail(str("the template says: ", why.bytes().substr(0, 400)), Code::unsupported);
}

Value formatted_time(Evaluator& evaluator, const Value&, const Arguments& arguments) {
  if (arguments.values.empty() || arguments.values[0].text() == nullptr)
    return evaluator.fail("'strftime_now' needs a format");
  char out[256];
  const std::string format = arguments.values[0].text()->bytes();
  const std::size_t n =
      format.size() > 100 ? 0 : std::strftime(out, sizeof out, format.c_str(), &evaluator.now());
  return Value(Text(std::string(out, n)));
}

constexpr MethodRow kFunctions[] = {{"range", range, {3}},
                                    {"namespace", new_namespace, {1, "*"}},
                                    {"dict", new_dict, {0, "*"}},
                                    {"raise_exception", refuse, {1}},
                                    {"strftime_now", formatted_time, {1}}};

const MethodRow* row_of(std::span<const MethodRow> rows, std::string_view name) noexcept {
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const MethodRow& row) { return row.name == name; });
  return found == rows.end() ? nullptr : &*found;
}

}  // namespace

bool is_global_function(std::string_view name) noexcept { return row_of(kFunctions, name) != nullptr; }
bool has_method(const Value& self, std::string_view name) noexcept {
  return row_of(methods_of(self), name) != nullptr;
}

Value call_builtin(Evaluator& evaluator, const Builtin& builtin, const Arguments& arguments) {
  const Value& self = builtin.self == nullptr ? Value() : *builtin.self;
  const MethodRow* row = row_of(
      builtin.self == nullptr ? std::span<const MethodRow>(kFunctions) : methods_of(self), builtin.name);
  if (row == nullptr) return evaluator.fail(str("'", builtin.name, "' is undefined"));
  if (!takes(evaluator, builtin.name, row->taken, arguments) || !evaluator.spend(self.present_weight()))
    return {};
  return row->call(evaluator, self, arguments);
}

}  // namespace strata::detail::jinja
