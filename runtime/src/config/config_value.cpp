#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include <strata/runtime/config/json.h>
#include <strata/runtime/str.h>
#include <strata/runtime/config/suggest.h>
#include <strata/runtime/units.h>
#include <strata/runtime/utf8.h>

#include "config/config_raw.h"

namespace strata::detail {
namespace {

Status invalid(std::string message) { return Status::error(Code::invalid, std::move(message)); }

std::string shown(const RawScalar& raw) {
  switch (raw.kind) {
    case RawKind::text:
      return str("the string '", raw.text, "'");
    case RawKind::boolean:
    case RawKind::other:
      return raw.text;
    default:
      return str("'", raw.text, "'");
  }
}

std::string_view expected(KeyType type) {
  switch (type) {
    case KeyType::boolean:
      return "true or false";
    case KeyType::integer:
      return "an integer";
    case KeyType::number:
      return "a number";
    case KeyType::text:
      return "a string in quotes";
    case KeyType::bytes:
      return "bytes such as \"32MiB\"";
    case KeyType::seconds:
      return "a time such as \"90s\"";
    case KeyType::steps:
      return "true, false, or steps such as \"10-12\"";
    case KeyType::choice:
      return "one of its choices";
    case KeyType::text_list:
      return "a list of strings";
    case KeyType::number_list:
      return "a list of numbers";
  }
  return "a value";
}

bool kind_fits(KeyType type, RawKind kind) {
  if (kind == RawKind::untyped) return true;
  switch (type) {
    case KeyType::boolean:
      return kind == RawKind::boolean;
    case KeyType::integer:
      return kind == RawKind::integer;
    case KeyType::number:
    case KeyType::number_list:
      return kind == RawKind::integer || kind == RawKind::number;
    case KeyType::text:
    case KeyType::choice:
    case KeyType::text_list:
      return kind == RawKind::text;
    case KeyType::bytes:
      return kind == RawKind::text || kind == RawKind::integer;
    case KeyType::seconds:
      return kind == RawKind::text || kind == RawKind::integer || kind == RawKind::number;
    case KeyType::steps:
      return kind == RawKind::text || kind == RawKind::integer || kind == RawKind::boolean;
  }
  return false;
}

std::vector<std::string_view> split_choices(std::string_view choices) {
  std::vector<std::string_view> parts;
  while (!choices.empty()) {
    const std::size_t bar = std::min(choices.find('|'), choices.size());
    parts.push_back(choices.substr(0, bar));
    choices.remove_prefix(std::min(bar + 1, choices.size()));
  }
  return parts;
}

template <class T>
bool parse_whole(std::string_view text, T& into) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), into);
  return error == std::errc{} && end == text.data() + text.size();
}

Status check_range(const KeySpec& spec, double value, std::string_view text) {
  if (value >= spec.min && value <= spec.max) return Status::ok();
  if (std::isinf(spec.max)) return invalid(str("'", text, "' is below the minimum of ", spec.min));
  return invalid(str("'", text, "' is outside ", spec.min, " to ", spec.max));
}

Result<ConfigValue> parse_integer(const KeySpec& spec, std::string_view text) {
  std::int64_t value = 0;
  if (!parse_whole(text, value)) return invalid(str("'", text, "' is not a 64-bit integer"));
  STRATA_TRY(check_range(spec, static_cast<double>(value), text));
  return ConfigValue(value);
}

Result<double> parse_number(const KeySpec& spec, std::string_view text) {
  double value = 0;
  if (!parse_whole(text, value) || !std::isfinite(value))
    return invalid(str("'", text, "' is not a finite number"));
  STRATA_TRY(check_range(spec, value, text));
  return value;
}

Result<ConfigValue> parse_byte_count(const KeySpec& spec, std::string_view text) {
  if (!spec.unlimited_word.empty() && text == spec.unlimited_word) return ConfigValue(kUnlimitedBytes);
  STRATA_TRY_ASSIGN(const std::uint64_t value, parse_bytes(text));
  STRATA_TRY(check_range(spec, static_cast<double>(value), text));
  return ConfigValue(value);
}

Result<ConfigValue> parse_duration(const KeySpec& spec, std::string_view text) {
  if (!spec.unlimited_word.empty() && text == spec.unlimited_word)
    return ConfigValue(std::numeric_limits<double>::infinity());
  STRATA_TRY_ASSIGN(const double value, parse_seconds(text));
  STRATA_TRY(check_range(spec, value, text));
  return ConfigValue(value);
}

Result<ConfigValue> parse_steps(std::string_view text) {
  if (text == "true") return ConfigValue(kAllSteps);
  if (text == "false") return ConfigValue(StepRange{});
  const std::size_t dash = text.find('-');
  StepRange range;
  const bool one = dash == text.npos;
  const bool parsed = parse_whole(text.substr(0, dash), range.first) &&
                      parse_whole(one ? text : text.substr(dash + 1), range.last);
  if (!parsed || range.first < 1 || range.empty())
    return invalid(str("'", text, "' is not ", expected(KeyType::steps), "; steps count from 1"));
  return ConfigValue(range);
}

Result<ConfigValue> parse_choice(const KeySpec& spec, std::string_view text) {
  const std::vector<std::string_view> choices = split_choices(spec.choices);
  if (std::find(choices.begin(), choices.end(), text) != choices.end()) return ConfigValue(std::string(text));
  std::string known = spec.allows_auto ? "auto" : "";
  for (const std::string_view choice : choices) known += str(known.empty() ? "" : ", ", choice);
  return invalid(str("'", text, "' is not one of ", known, did_you_mean(text, choices)));
}

Result<ConfigValue> parse_scalar(const KeySpec& spec, const RawScalar& raw) {
  const std::string& text = raw.text;
  switch (spec.type) {
    case KeyType::boolean:
      if (text == "true" || text == "false") return ConfigValue(text == "true");
      return invalid(str("'", text, "' is not true or false"));
    case KeyType::integer:
      return parse_integer(spec, text);
    case KeyType::number: {
      STRATA_TRY_ASSIGN(const double value, parse_number(spec, text));
      return ConfigValue(value);
    }
    case KeyType::text:
      return ConfigValue(text);
    case KeyType::bytes:
      return parse_byte_count(spec, text);
    case KeyType::seconds:
      return parse_duration(spec, text);
    case KeyType::steps:
      return parse_steps(text);
    case KeyType::choice:
      return parse_choice(spec, text);
    case KeyType::text_list:
    case KeyType::number_list:
      break;
  }
  return Status::error(Code::internal, "a list parsed as a scalar");
}

/// The items of "a, b", or of a TOML array written on the command line.
Result<std::vector<RawScalar>> split_list(const std::string& text) {
  if (text.starts_with('[')) {
    RawLayer layer;
    read_toml(str("[list]\nitems = ", text), "list", layer);
    if (!layer.problems.empty() || layer.assignments.size() != 1 || !layer.assignments[0].value.is_list)
      return invalid(str("'", text, "' starts like a list but is not one; write [\"a\", \"b\"]"));
    return std::move(layer.assignments[0].value.items);
  }
  std::vector<RawScalar> items;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    std::string_view item = rest.substr(0, comma);
    while (item.starts_with(' ')) item.remove_prefix(1);
    while (item.ends_with(' ')) item.remove_suffix(1);
    if (item.empty()) return invalid(str("'", text, "' has an empty item"));
    items.push_back({RawKind::untyped, std::string(item)});
    if (comma + 1 == rest.size()) return invalid(str("'", text, "' ends with a comma"));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return items;
}

Result<ConfigValue> parse_list(const KeySpec& spec, const std::vector<RawScalar>& items) {
  std::vector<std::string> texts;
  std::vector<double> numbers;
  for (const RawScalar& item : items) {
    if (!kind_fits(spec.type, item.kind))
      return invalid(str("expects ", expected(spec.type), ", got ", shown(item), " in it"));
    if (!is_utf8(item.text)) return invalid("has an item that is not UTF-8");
    if (spec.type == KeyType::text_list) {
      texts.push_back(item.text);
      continue;
    }
    STRATA_TRY_ASSIGN(const double value, parse_number(spec, item.text));
    numbers.push_back(value);
  }
  if (spec.type == KeyType::text_list) return ConfigValue(std::move(texts));
  return ConfigValue(std::move(numbers));
}

std::string print_number(double value) { return fmt::format("{}", value); }

std::string print_byte_count(std::uint64_t bytes) {
  static constexpr struct {
    std::uint64_t factor;
    std::string_view unit;
  } kUnits[] = {{kGiB, "GiB"}, {kMiB, "MiB"}, {kKiB, "KiB"}};
  for (const auto& [factor, unit] : kUnits)
    if (bytes != 0 && bytes % factor == 0) return fmt::format("\"{}{}\"", bytes / factor, unit);
  return fmt::format("{}", bytes);
}

std::string print_steps(StepRange range) {
  if (range.empty()) return "false";
  if (range == kAllSteps) return "true";
  return fmt::format("\"{}-{}\"", range.first, range.last);
}

template <class Items, class Print>
std::string print_list(const Items& items, Print print) {
  std::string out = "[";
  for (const auto& item : items) out += (out.size() == 1 ? "" : ", ") + print(item);
  return out + "]";
}

}  // namespace

Result<ConfigValue> parse_value(const KeySpec& spec, const RawValue& raw) {
  const bool wants_list = spec.type == KeyType::text_list || spec.type == KeyType::number_list;
  if (wants_list && raw.is_list) return parse_list(spec, raw.items);
  if (raw.is_list || raw.items.size() != 1)
    return invalid(str("expects ", expected(spec.type), ", got a list"));
  const RawScalar& scalar = raw.items.front();
  if (wants_list) {
    if (spec.accepts_scalar && scalar.kind == RawKind::text) return parse_list(spec, raw.items);
    if (scalar.kind != RawKind::untyped)
      return invalid(str("expects ", expected(spec.type), ", got ", shown(scalar)));
    STRATA_TRY_ASSIGN(const std::vector<RawScalar> items, split_list(scalar.text));
    return parse_list(spec, items);
  }
  if (!kind_fits(spec.type, scalar.kind))
    return invalid(str("expects ", expected(spec.type), ", got ", shown(scalar)));
  if (!is_utf8(scalar.text)) return invalid("is not UTF-8");
  return parse_scalar(spec, scalar);
}

std::string print_value(const KeySpec& spec, const ConfigValue& value) {
  switch (spec.type) {
    case KeyType::boolean:
      return std::get<bool>(value) ? "true" : "false";
    case KeyType::integer:
      return fmt::format("{}", std::get<std::int64_t>(value));
    case KeyType::number:
      return print_number(std::get<double>(value));
    case KeyType::text:
    case KeyType::choice:
      return json_string(std::get<std::string>(value));
    case KeyType::bytes: {
      const std::uint64_t bytes = std::get<std::uint64_t>(value);
      return bytes == kUnlimitedBytes ? json_string(spec.unlimited_word) : print_byte_count(bytes);
    }
    case KeyType::seconds: {
      const double seconds = std::get<double>(value);
      return std::isinf(seconds) ? json_string(spec.unlimited_word) : fmt::format("\"{}s\"", seconds);
    }
    case KeyType::steps:
      return print_steps(std::get<StepRange>(value));
    case KeyType::text_list:
      return print_list(std::get<std::vector<std::string>>(value), json_string);
    case KeyType::number_list:
      return print_list(std::get<std::vector<double>>(value), print_number);
  }
  return "\"\"";
}

std::string print_raw(const RawValue& raw) {
  if (!raw.is_list) return raw.items.empty() ? std::string() : raw.items.front().text;
  return print_list(raw.items, [](const RawScalar& item) { return item.text; });
}

}  // namespace strata::detail
