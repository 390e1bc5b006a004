#include "api/request_fields.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <strata/runtime/config/suggest.h>
#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

constexpr std::size_t kMaxShown = 80;  // bytes of a client's own text in a message

std::string shown(std::string_view text) {
  return text.size() <= kMaxShown ? std::string(text) : str(text.substr(0, kMaxShown), "...");
}

/// The number itself, or the kind of value.
std::string describe(const nlohmann::json& value) {
  return value.is_number() || value.is_boolean() ? value.dump() : str("of type ", value.type_name());
}

}  // namespace

// Programs whose numbers are all floating-point write 4.0.
std::optional<std::int64_t> whole_number(const nlohmann::json& value) {
  constexpr double kExact = 9007199254740992;  // 2^53: beyond, other numbers have been rounded to this one
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
    return static_cast<std::int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const auto number = value.get<double>();
  if (!(std::abs(number) <= kExact) || std::trunc(number) != number) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

void RequestFields::fail(std::string_view name, const std::string& what, std::string code) {
  if (error_) return;
  const std::string field = str(path_, shown(name));
  error_ = ApiError{400, str("'", field, "' ", what), field, std::move(code)};
}

void RequestFields::fail_type(std::string_view name, const Json& value, std::string_view wanted) {
  fail(name, str("is ", describe(value), "; it must be ", wanted), "invalid_type");
}

const RequestFields::Json* RequestFields::find(std::string_view name) {
  known_.push_back(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<bool> RequestFields::flag(std::string_view name) {
  const Json* const value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  fail_type(name, *value, "true or false");
  return std::nullopt;
}

std::optional<std::string> RequestFields::text(std::string_view name) {
  const Json* const value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  fail_type(name, *value, "a string");
  return std::nullopt;
}

std::optional<std::int64_t> RequestFields::integer(std::string_view name, std::int64_t min,
                                                   std::int64_t max) {
  const Json* const value = find(name);
  if (value == nullptr) return std::nullopt;
  const std::string wanted = str("a whole number from ", min, " to ", max);
  const auto number = whole_number(*value);
  if (number && *number >= min && *number <= max) return number;
  if (value->is_number_integer() || number)
    fail(name, str("is ", value->dump(), "; it must be ", wanted), "invalid_value");
  else
    fail_type(name, *value, wanted);
  return std::nullopt;
}

std::optional<double> RequestFields::number(std::string_view name, double min, double max) {
  const Json* const value = find(name);
  if (value == nullptr) return std::nullopt;
  const std::string wanted = str("a number from ", min, " to ", max);
  if (!value->is_number()) {
    fail_type(name, *value, wanted);
    return std::nullopt;
  }
  const auto number = value->get<double>();
  if (number >= min && number <= max) return number;
  fail(name, str("is ", value->dump(), "; it must be ", wanted), "invalid_value");
  return std::nullopt;
}

void RequestFields::accept_only(std::string_view name, std::string_view neutral) {
  const Json* const value = find(name);
  if (value == nullptr) return;
  const Json accepted = Json::parse(neutral);
  if (std::find(accepted.begin(), accepted.end(), *value) != accepted.end()) return;
  std::string list;
  for (const Json& each : accepted) list += str(list.empty() ? "" : " or ", each.dump());
  fail(name, str("is not supported here; leave it out, or set it to ", list), "unsupported_parameter");
}

void RequestFields::refuse_others() {
  for (auto field = object_.begin(); field != object_.end(); ++field)
    if (std::find(known_.begin(), known_.end(), field.key()) == known_.end())
      return fail(field.key(), str("is unknown", did_you_mean(shown(field.key()), known_)),
                  "unknown_parameter");
}

}  // namespace strata::detail
