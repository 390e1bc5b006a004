// The filters of Jinja 3 that chat templates use; tojson is that of transformers, which escapes nothing for
// HTML.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>

#include <strata/runtime/str.h>

#include "jinja/evaluator.h"

namespace strata::detail::jinja {
namespace {

using Filter = Value (*)(Evaluator&, const Value&, const Arguments&);

std::int64_t integer_or(const Value* value, std::int64_t otherwise) {
  return value != nullptr && value->is_integer() ? value->integer() : otherwise;
}
Text text_or(const Value* value, const std::string& otherwise) {
  return value == nullptr || value->is_undefined() ? Text(otherwise) : printed(*value);
}

Value size_of_value(Evaluator& evaluator, const Value& value, const Arguments&) {
  if (const Text* text = value.text()) return Value::size(character_offsets(text->bytes()).size() - 1);
  if (value.list() != nullptr) return Value::size(value.list()->size());
  if (value.dict() != nullptr) return Value::size(value.dict()->size());
  if (value.is_undefined()) return Value::size(0);
  return evaluator.fail(str("the length of ", value.kind()));
}

/// Jinja's title: a word begins after white space, a hyphen or an opening bracket, other than in Python's.
Text titled(const Text& text) {
  const Text whole = lower(text);
  Text out;
  bool begins = true;
  const std::vector<std::size_t> at = character_offsets(whole.bytes());
  for (std::size_t i = 0; i + 1 < at.size(); ++i) {
    const Text one = whole.slice(at[i], at[i + 1]);
    out.append(begins ? upper(one) : one);
    begins = stripped(one, true, true).empty() ||
             std::string_view("-({[<").find(one.bytes()) != std::string_view::npos;
  }
  return out;
}

Value trimmed(Evaluator&, const Value& value, const Arguments& arguments) {
  const Value* of = arguments.get(0, "chars");
  return Value(stripped(printed(value), true, true,
                        of != nullptr && of->text() != nullptr ? of->text()->bytes() : std::string()));
}

Value with_default(Evaluator&, const Value& value, const Arguments& arguments) {
  const Value* falsy = arguments.get(1, "boolean");
  const bool replaces = value.is_undefined() || (falsy != nullptr && falsy->truth() && !value.truth());
  if (!replaces) return value;
  const Value* otherwise = arguments.get(0, "default_value");
  return otherwise == nullptr ? Value(Text()) : *otherwise;
}

Value json_of(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  const std::function<bool(const Value&)> writable = [&](const Value& v) {
    if (v.list() != nullptr) return std::all_of(v.list()->begin(), v.list()->end(), writable);
    if (v.dict() != nullptr)
      return std::all_of(v.dict()->begin(), v.dict()->end(),
                         [&](const auto& e) { return writable(e.second); });
    return v.is_none() || v.is_number() || v.is_large() || v.text() != nullptr;
  };
  if (!writable(value)) return evaluator.fail(str("'tojson' of ", value.kind(), " or of something in it"));
  const Value *ascii = arguments.get(0, "ensure_ascii"), *separators = arguments.get(2, "separators");
  if ((ascii != nullptr && ascii->truth()) || (separators != nullptr && separators->truth()))
    return evaluator.fail("'tojson' with ensure_ascii or separators is not supported", Code::unsupported);
  const Value* indent = arguments.get(1, "indent");
  const Value* sort = arguments.get(3, "sort_keys");
  Text text = to_json(value, static_cast<int>(std::clamp<std::int64_t>(integer_or(indent, -1), -1, 16)),
                      sort != nullptr && sort->truth());
  return evaluator.spend(text.size()) ? Value(std::move(text)) : Value();
}

Value joined(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  const Text between = text_or(arguments.get(0, "d"), "");
  const Value* attribute = arguments.get(1, "attribute");
  Text out;
  bool first = true;
  for (const Value& one : evaluator.values_of(value)) {
    if (!evaluator.spend(between.size())) return {};
    if (!std::exchange(first, false)) out.append(between);
    out.append(printed(attribute == nullptr ? one : attribute_at(evaluator, one, *attribute)));
  }
  return evaluator.spend(out.size()) ? Value(std::move(out)) : Value();
}

Value replaced_text(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  const Value *from = arguments.get(0, "old"), *to = arguments.get(1, "new");
  if (from == nullptr || to == nullptr) return evaluator.fail("'replace' needs two texts");
  const Text text = printed(value), with = printed(*to);
  const std::string what = printed(*from).bytes();
  std::size_t n = what.empty() ? text.size() + 1 : 0;
  for (std::size_t at = text.bytes().find(what); !what.empty() && at != std::string::npos;
       at = text.bytes().find(what, at + what.size()))
    ++n;
  // The result is counted before it is made, since it may be larger by far.
  if (!with.empty() && n > SIZE_MAX / 2 / with.size())
    return evaluator.fail("'replace' makes too long a text");
  if (!evaluator.spend(text.size() + n * with.size())) return {};
  Text out = replaced(text, what, with, integer_or(arguments.get(2, "count"), -1));
  return evaluator.spend(out.size()) ? Value(std::move(out)) : Value();
}

Value first_of(Evaluator& evaluator, const Value& value, const Arguments&) {
  if (value.text() != nullptr) return evaluator.item(value, Value(std::int64_t{0}));
  const std::vector<Value> values = evaluator.values_of(value);
  return values.empty() ? Value::undefined("the first of nothing") : values.front();
}
Value last_of(Evaluator& evaluator, const Value& value, const Arguments&) {
  if (value.text() != nullptr) return evaluator.item(value, Value(std::int64_t{-1}));
  const std::vector<Value> values = evaluator.values_of(value);
  return values.empty() ? Value::undefined("the last of nothing") : values.back();
}
Value list_of(Evaluator& evaluator, const Value& value, const Arguments&) {
  return Value(List(evaluator.values_of(value)));
}
Value reversed(Evaluator& evaluator, const Value& value, const Arguments&) {
  List values = evaluator.values_of(value);
  std::reverse(values.begin(), values.end());
  if (value.text() == nullptr) return Value(std::move(values));
  Text out;
  for (const Value& one : values) out.append(*one.text());
  return Value(std::move(out));
}

Value items_of(Evaluator& evaluator, const Value& value, const Arguments&) {
  if (value.is_undefined()) return Value(List());
  if (value.dict() == nullptr) return evaluator.fail(str("the items of ", value.kind()));
  List out;
  for (const auto& [key, held] : *value.dict()) out.emplace_back(List{Value(key), held});
  return Value(std::move(out));
}

Value sorted_items(Evaluator& evaluator, const Value& value, const Arguments&) {
  if (value.dict() == nullptr) return evaluator.fail(str("'dictsort' of ", value.kind()));
  Dict entries = *value.dict();
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return lower(Text(a.first)).bytes() < lower(Text(b.first)).bytes();
  });
  return items_of(evaluator, Value(std::move(entries)), {});
}

Value integer_of(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  const std::int64_t otherwise = integer_or(arguments.get(0, "default"), 0);
  if (value.is_integer()) return Value(value.integer());
  if (value.is_number())
    return std::fabs(value.number()) < 9e15 ? Value(static_cast<std::int64_t>(value.number()))
                                            : evaluator.fail("'int' of a number that is too large");
  if (value.text() == nullptr) return Value(otherwise);
  const Text text = stripped(*value.text(), true, true);
  std::int64_t out = 0;
  const char *begin = text.bytes().data(), *end = begin + text.size();
  if (begin != end && *begin == '+') ++begin;
  const auto whole = std::from_chars(begin, end, out);
  if (whole.ec == std::errc() && whole.ptr == end) return Value(out);
  double real = 0;
  const auto parsed = std::from_chars(begin, end, real);
  const bool fits = parsed.ec == std::errc() && parsed.ptr == end && std::fabs(real) < 9e15;
  return Value(fits ? static_cast<std::int64_t>(real) : otherwise);
}

Value real_of(Evaluator&, const Value& value, const Arguments& arguments) {
  const Value* given = arguments.get(0, "default");
  Value otherwise = given == nullptr ? Value(0.0) : *given;
  if (value.is_number()) return Value(value.number());
  if (value.text() == nullptr) return otherwise;
  const Text text = stripped(*value.text(), true, true);
  double real = 0;
  const auto parsed = std::from_chars(text.bytes().data(), text.bytes().data() + text.size(), real);
  return parsed.ec == std::errc() && parsed.ptr == text.bytes().data() + text.size() ? Value(real)
                                                                                     : otherwise;
}

Value indented(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  const Value* width = arguments.get(0, "width");
  const Value *first = arguments.get(1, "first"), *blank = arguments.get(2, "blank");
  const std::string margin =
      width != nullptr && width->text() != nullptr
          ? width->text()->bytes()
          : std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(integer_or(width, 4), 0, 256)),
                        ' ');
  const Text text = printed(value);
  const auto lines = static_cast<std::size_t>(std::count(text.bytes().begin(), text.bytes().end(), '\n'));
  if (!evaluator.spend(text.size() + lines * std::max<std::size_t>(1, margin.size()))) return {};
  Text out(first != nullptr && first->truth() ? margin : "");
  std::size_t done = 0;
  for (std::size_t line = text.bytes().find('\n'); line != std::string::npos;
       line = text.bytes().find('\n', done)) {
    out.append(text.slice(done, line + 1));
    done = line + 1;
    const bool is_blank = done == text.size() || text.bytes()[done] == '\n';
    if (!is_blank || (blank != nullptr && blank->truth())) out.append(Text(margin));
  }
  out.append(text.slice(done, text.size()));
  return evaluator.spend(out.size()) ? Value(std::move(out)) : Value();
}

Value escaped(Evaluator&, const Value& value, const Arguments&) {
  Text out = replaced(printed(value), "&", Text("&amp;"));
  out = replaced(replaced(out, "<", Text("&lt;")), ">", Text("&gt;"));
  return Value(replaced(replaced(out, "'", Text("&#39;")), "\"", Text("&#34;")));
}

/// As in Jinja, whatever is false, such as none for tools, has no values for these filters.
List values_if_any(Evaluator& evaluator, const Value& value) {
  return value.truth() ? evaluator.values_of(value) : List();
}

Value mapped(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  const Value *attribute = arguments.get(SIZE_MAX, "attribute"),
              *otherwise = arguments.get(SIZE_MAX, "default");
  List out;
  for (const Value& one : values_if_any(evaluator, value)) {
    if (attribute != nullptr) {
      Value found = attribute_at(evaluator, one, *attribute);
      if (found.is_undefined() && otherwise != nullptr) found = *otherwise;
      out.push_back(std::move(found));
      continue;
    }
    if (arguments.values.empty() || arguments.values[0].text() == nullptr)
      return evaluator.fail("'map' needs the name of a filter or attribute=");
    const Arguments rest{{arguments.values.begin() + 1, arguments.values.end()}, arguments.named};
    out.push_back(evaluator.apply_filter(arguments.values[0].text()->bytes(), one, rest));
  }
  return Value(std::move(out));
}

/// select, reject, selectattr and rejectattr: the values of which a test says what is wanted.
template <bool kOfAttribute, bool kWanted>
Value chosen(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  std::size_t next = 0;
  if (kOfAttribute && arguments.values.empty()) return evaluator.fail("the name of an attribute is missing");
  const Value attribute = kOfAttribute ? arguments.values[next++] : Value();
  const Value* test = next < arguments.values.size() ? &arguments.values[next++] : nullptr;
  Arguments rest;
  for (; next < arguments.values.size(); ++next) rest.values.push_back(arguments.values[next]);
  List out;
  for (const Value& one : values_if_any(evaluator, value)) {
    const Value tested = kOfAttribute ? attribute_at(evaluator, one, attribute) : one;
    const bool passes =
        test == nullptr ? tested.truth() : evaluator.passes_test(printed(*test).bytes(), tested, rest);
    if (passes == kWanted) out.push_back(one);
  }
  return Value(std::move(out));
}

Value unique_values(Evaluator& evaluator, const Value& value, const Arguments&) {
  List out;
  for (const Value& one : evaluator.values_of(value)) {
    evaluator.spend(out.size());
    if (std::none_of(out.begin(), out.end(), [&](const Value& seen) { return equal(seen, one); }))
      out.push_back(one);
  }
  return Value(std::move(out));
}

Value sorted(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  List values = evaluator.values_of(value);
  const Value *falling = arguments.get(0, "reverse"), *attribute = arguments.get(SIZE_MAX, "attribute");
  const auto key = [&](const Value& one) {
    return attribute == nullptr ? one : attribute_at(evaluator, one, *attribute);
  };
  const bool texts =
      std::all_of(values.begin(), values.end(), [&](const Value& v) { return key(v).text() != nullptr; });
  const bool numbers =
      std::all_of(values.begin(), values.end(), [&](const Value& v) { return key(v).is_number(); });
  if (!texts && !numbers)
    return evaluator.fail("'sort' of values that are neither all texts nor all numbers");
  std::stable_sort(values.begin(), values.end(), [&](const Value& a, const Value& b) {
    if (numbers) return key(a).number() < key(b).number();
    return lower(*key(a).text()).bytes() < lower(*key(b).text()).bytes();
  });
  if (falling != nullptr && falling->truth()) std::reverse(values.begin(), values.end());
  return Value(std::move(values));
}

Value total(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  const Value* attribute = arguments.get(SIZE_MAX, "attribute");
  double real = 0;
  std::int64_t whole = 0;
  bool is_whole = true;
  for (const Value& each : evaluator.values_of(value)) {
    const Value one = attribute == nullptr ? each : attribute_at(evaluator, each, *attribute);
    if (!one.is_number()) return evaluator.fail(str("'sum' of ", one.kind()));
    is_whole = is_whole && one.is_integer() && !__builtin_add_overflow(whole, one.integer(), &whole);
    real += one.number();
  }
  return is_whole ? Value(whole) : Value(real);
}

struct FilterRow {
  std::string_view name;
  Filter apply;
  Takes taken = {};
};
constexpr FilterRow kFilters[] = {
    {"trim", trimmed, {1, "chars"}},
    {"length", size_of_value},
    {"count", size_of_value},
    {"default", with_default, {2, "default_value boolean"}},
    {"d", with_default, {2, "default_value boolean"}},
    {"tojson", json_of, {4, "ensure_ascii indent separators sort_keys"}},
    {"join", joined, {2, "d attribute"}},
    {"replace", replaced_text, {3, "old new count"}},
    {"first", first_of},
    {"last", last_of},
    {"list", list_of},
    {"reverse", reversed},
    {"items", items_of},
    {"dictsort", sorted_items, {0}},
    {"int", integer_of, {1, "default"}},
    {"float", real_of, {1, "default"}},
    {"indent", indented, {3, "width first blank"}},
    {"escape", escaped},
    {"e", escaped},
    {"map", mapped, {16, "*"}},
    {"select", chosen<false, true>, {16}},
    {"reject", chosen<false, false>, {16}},
    {"selectattr", chosen<true, true>, {16}},
    {"rejectattr", chosen<true, false>, {16}},
    {"unique", unique_values},
    {"sort", sorted, {1, "reverse attribute"}},
    {"sum", total, {0, "attribute"}},
    {"safe", [](Evaluator&, const Value& v, const Arguments&) { return v; }},
    {"string", [](Evaluator&, const Value& v, const Arguments&) { return Value(printed(v)); }},
    {"upper", [](Evaluator&, const Value& v, const Arguments&) { return Value(upper(printed(v))); }},
    {"lower", [](Evaluator&, const Value& v, const Arguments&) { return Value(lower(printed(v))); }},
    {"title", [](Evaluator&, const Value& v, const Arguments&) { return Value(titled(printed(v))); }},
    {"capitalize",
     [](Evaluator&, const Value& v, const Arguments&) { return Value(capitalized(printed(v), false)); }},
    {"abs",
     [](Evaluator& e, const Value& v, const Arguments&) {
       if (!v.is_number()) return e.fail(str("'abs' of ", v.kind()));
       if (!v.is_integer()) return Value(std::fabs(v.number()));
       if (v.integer() == INT64_MIN) return e.fail("'abs' of the smallest whole number is too large");
       return Value(v.integer() < 0 ? -v.integer() : v.integer());
     }},
};

}  // namespace

bool takes(Evaluator& evaluator, std::string_view name, const Takes& taken, const Arguments& arguments) {
  if (arguments.values.size() > taken.values) {
    evaluator.fail(str("'", name, "' with ", arguments.values.size(), " arguments is not supported, at most ",
                       taken.values, " are"),
                   Code::unsupported);
    return false;
  }
  for (const auto& [given, value] : arguments.named)
    if (taken.names != "*" && str(" ", taken.names, " ").find(str(" ", given, " ")) == std::string::npos) {
      evaluator.fail(str("'", name, "' with ", given, "= is not supported"), Code::unsupported);
      return false;
    }
  return true;
}

Value attribute_at(Evaluator& evaluator, const Value& value, const Value& path) {
  if (path.text() == nullptr) return evaluator.item(value, path);
  Value found = value;
  std::string_view rest = path.text()->bytes();
  for (bool more = true; more;) {
    const std::size_t dot = rest.find('.');
    more = dot != std::string_view::npos;
    const std::string part(rest.substr(0, dot));
    const bool is_index =
        !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string::npos;
    found = evaluator.item(found, is_index ? Value(std::int64_t{std::stoi(part)}) : Value(part));
    if (more) rest.remove_prefix(dot + 1);
  }
  return found;
}

Value Evaluator::apply_filter(std::string_view name, const Value& value, const Arguments& arguments) {
  if (failed()) return {};
  for (const FilterRow& row : kFilters)
    if (row.name == name)
      return takes(*this, name, row.taken, arguments) && spend(value.present_weight())
                 ? row.apply(*this, value, arguments)
                 : Value();
  return fail(str("the filter '", name.substr(0, 40), "' is not supported"), Code::unsupported);
}

}  // namespace strata::detail::jinja
