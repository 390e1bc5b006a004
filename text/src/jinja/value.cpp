#include "jinja/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <strata/runtime/utf8.h>

namespace strata::detail::jinja {
namespace {

/// repr() of a float: the shortest digits that are read back as the same number.
std::string number_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char digits[40];
  const double size = std::fabs(value);
  const bool plain = value == 0 || (size >= 1e-4 && size < 1e16);
  const auto end = std::to_chars(digits, digits + sizeof digits, value,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific)
                       .ptr;
  std::string out(digits, end);
  return plain && out.find('.') == std::string::npos ? out + ".0" : out;
}

/// repr() of a string, without the escapes of characters that cannot be printed.
Text quoted_text(const Text& text) {
  const bool twice =
      text.bytes().find('\'') != std::string::npos && text.bytes().find('"') == std::string::npos;
  const std::string quote = twice ? "\"" : "'";
  Text out = replaced(text, "\\", Text("\\\\"));
  if (!twice) out = replaced(out, "'", Text("\\'"));
  out = replaced(replaced(replaced(out, "\n", Text("\\n")), "\r", Text("\\r")), "\t", Text("\\t"));
  Text whole(quote);
  whole.append(out);
  whole.append(Text(quote));
  return whole;
}

Text json_text(const Text& text) {
  std::string out = "\"";
  for (const char c : text.bytes()) {
    constexpr std::string_view kHex = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      (out += '\\') += c;
    else if (c == '\n' || c == '\r' || c == '\t' || c == '\b' || c == '\f')
      (out += '\\') += c == '\n' ? 'n' : c == '\r' ? 'r' : c == '\t' ? 't' : c == '\b' ? 'b' : 'f';
    else if (byte < 0x20)
      ((out += "\\u00") += kHex[byte >> 4U]) += kHex[byte & 15U];
    else
      out += c;
  }
  return Text(out + '"', text.author());
}

/// "[a, b]" of texts, each with what `one` makes of it.
template <class One>
Text enclosed(std::string_view brackets, std::size_t n, const std::string& separator,
              const std::string& before, const std::string& after, const One& one) {
  Text out(std::string(1, brackets[0]));
  for (std::size_t i = 0; i < n; ++i) {
    out.append(Text(i == 0 ? before : separator + before));
    out.append(one(i));
  }
  if (n > 0) out.append(Text(after));
  out.append(Text(std::string(1, brackets[1])));
  return out;
}

}  // namespace

Value::Value(List list) {
  for (const Value& value : list) {
    nesting = std::max(nesting, value.nesting);
    weight = std::min(weight + value.weight, 2 * kMaxWeight);
  }
  ++nesting;
  held = std::make_shared<const List>(std::move(list));
}
Value::Value(Dict dict) {
  for (const auto& [key, value] : dict) {
    nesting = std::max(nesting, value.nesting);
    weight = std::min(weight + key.size() + value.weight, 2 * kMaxWeight);
  }
  ++nesting;
  held = std::make_shared<const Dict>(std::move(dict));
}
Value Value::large(std::uint64_t value) {
  Value out;
  out.held = value;
  return out;
}
Value Value::undefined(std::string name) {
  Value out;
  out.held = Undefined{std::move(name)};
  return out;
}
Value Value::new_namespace(Dict dict) {
  Value out;
  out.held = std::make_shared<Dict>(std::move(dict));
  out.nesting = kMaxNesting;
  return out;
}

const Text* Value::text() const noexcept {
  const auto* found = std::get_if<std::shared_ptr<const Text>>(&held);
  return found == nullptr ? nullptr : found->get();
}
const List* Value::list() const noexcept {
  const auto* found = std::get_if<std::shared_ptr<const List>>(&held);
  return found == nullptr ? nullptr : found->get();
}
const Dict* Value::dict() const noexcept {
  if (const Dict* found = changeable()) return found;
  const auto* found = std::get_if<std::shared_ptr<const Dict>>(&held);
  return found == nullptr ? nullptr : found->get();
}
Dict* Value::changeable() const noexcept {
  const auto* found = std::get_if<std::shared_ptr<Dict>>(&held);
  return found == nullptr ? nullptr : found->get();
}
const Builtin* Value::builtin() const noexcept {
  const auto* found = std::get_if<std::shared_ptr<const Builtin>>(&held);
  return found == nullptr ? nullptr : found->get();
}
const Macro* Value::macro() const noexcept {
  const auto* found = std::get_if<std::shared_ptr<const Macro>>(&held);
  return found == nullptr ? nullptr : found->get();
}
bool Value::is_integer() const noexcept { return is_bool() || std::holds_alternative<std::int64_t>(held); }
bool Value::is_number() const noexcept { return is_integer() || std::holds_alternative<double>(held); }
std::int64_t Value::integer() const noexcept {
  if (const bool* flag = std::get_if<bool>(&held)) return *flag ? 1 : 0;
  if (const std::int64_t* whole = std::get_if<std::int64_t>(&held)) return *whole;
  return 0;
}
double Value::number() const noexcept {
  if (const double* real = std::get_if<double>(&held)) return *real;
  return static_cast<double>(integer());
}
const Value* Value::find(std::string_view key) const noexcept {
  const Dict* entries = dict();
  if (entries == nullptr) return nullptr;
  for (const auto& [name, value] : *entries)
    if (name == key) return &value;
  return nullptr;
}

std::size_t Value::present_weight() const noexcept {
  if (changeable() == nullptr) return weight;
  std::size_t sum = 1;
  for (const auto& [key, value] : *changeable())
    sum = std::min(sum + key.size() + value.weight, 2 * kMaxWeight);
  return sum;
}

bool Value::truth() const noexcept {
  if (is_undefined() || is_none()) return false;
  if (is_number()) return number() != 0;
  if (const Text* found = text()) return !found->empty();
  if (const List* found = list()) return !found->empty();
  if (changeable() != nullptr) return true;
  if (const Dict* found = dict()) return !found->empty();
  return true;
}

std::string_view Value::kind() const noexcept {
  constexpr std::string_view kNames[] = {
      "an undefined value", "none",       "a boolean", "a whole number",
      "a number",           "a text",     "a list",    "a mapping",
      "a namespace",        "a function", "a macro",   "a large whole number"};
  return kNames[held.index()];
}

bool equal(const Value& a, const Value& b) noexcept {
  if (a.is_number() && b.is_number())
    return a.is_integer() && b.is_integer() ? a.integer() == b.integer() : a.number() == b.number();
  if (a.text() != nullptr && b.text() != nullptr) return a.text()->bytes() == b.text()->bytes();
  if (a.list() != nullptr && b.list() != nullptr)
    return std::equal(a.list()->begin(), a.list()->end(), b.list()->begin(), b.list()->end(), equal);
  if (a.dict() != nullptr && b.dict() != nullptr) {
    if (a.dict()->size() != b.dict()->size()) return false;
    return std::all_of(a.dict()->begin(), a.dict()->end(), [&](const auto& entry) {
      const Value* other = b.find(entry.first);
      return other != nullptr && equal(entry.second, *other);
    });
  }
  const auto *large = std::get_if<std::uint64_t>(&a.held), *other = std::get_if<std::uint64_t>(&b.held);
  if (large != nullptr && other != nullptr) return *large == *other;
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

Text printed(const Value& value, bool quoted) {
  if (const Text* text = value.text()) return quoted ? quoted_text(*text) : *text;
  if (value.is_undefined()) return Text(quoted ? "Undefined" : "");
  if (value.is_none()) return Text("None");
  if (value.is_bool()) return Text(value.integer() != 0 ? "True" : "False");
  if (value.is_integer()) return Text(std::to_string(value.integer()));
  if (value.is_number()) return Text(number_text(value.number()));
  if (const auto* large = std::get_if<std::uint64_t>(&value.held)) return Text(std::to_string(*large));
  if (const List* list = value.list())
    return enclosed("[]", list->size(), ", ", "", "",
                    [&](std::size_t i) { return printed((*list)[i], true); });
  if (const Dict* dict = value.dict())
    return enclosed("{}", dict->size(), ", ", "", "", [&](std::size_t i) {
      Text entry = quoted_text(Text((*dict)[i].first));
      entry.append(Text(": "));
      entry.append(printed((*dict)[i].second, true));
      return entry;
    });
  return Text("<function>");
}

Text to_json(const Value& value, int indent, bool sort_keys, int depth) {
  const auto line = [&](int level) {
    std::string out(indent < 0 ? 0 : 1, '\n');
    out.append(static_cast<std::size_t>(std::max(0, indent * level)), ' ');
    return out;
  };
  const std::string separator = indent < 0 ? ", " : ",";
  if (const Text* text = value.text()) return json_text(*text);
  if (value.is_bool()) return Text(value.integer() != 0 ? "true" : "false");
  if (const List* list = value.list())
    return enclosed("[]", list->size(), separator, line(depth + 1), line(depth),
                    [&](std::size_t i) { return to_json((*list)[i], indent, sort_keys, depth + 1); });
  if (const Dict* dict = value.dict()) {
    Dict entries = *dict;
    if (sort_keys)
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
    return enclosed("{}", entries.size(), separator, line(depth + 1), line(depth), [&](std::size_t i) {
      Text entry = json_text(Text(entries[i].first));
      entry.append(Text(": "));
      entry.append(to_json(entries[i].second, indent, sort_keys, depth + 1));
      return entry;
    });
  }
  return value.is_number() || value.is_large() ? printed(value) : Text("null");
}

}  // namespace strata::detail::jinja
