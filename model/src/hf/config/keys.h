#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include <strata/runtime/status.h>
#include <strata/runtime/str.h>

namespace strata::detail {

using nlohmann::json;

/// A key of a run's own copy of its model's config.json, see with_stacked_experts().
inline constexpr const char* kStackedExperts = "strata_stacked_experts";

inline constexpr double kMaxFloat = static_cast<double>(std::numeric_limits<float>::max());

/// Reads keys of one config and collects the problems.
class Keys {
 public:
  /// `section` is written before the names in messages, as in "rope_scaling.".
  explicit Keys(const json& object, std::string section = {})
      : object_(object), section_(std::move(section)) {}

  /// The value of the first of these names that is present and not null, or nullptr.
  const json* find(std::initializer_list<const char*> names) const {
    for (const char* name : names)
      if (const auto at = object_.find(name); at != object_.end() && !at->is_null()) return &*at;
    return nullptr;
  }
  /// Whether the key is present, even if it is null.
  bool has(const char* name) const { return object_.contains(name); }
  std::int64_t integer(std::initializer_list<const char*> names, std::optional<std::int64_t> otherwise = {}) {
    const json* value = find(names);
    if (value == nullptr && otherwise) return *otherwise;
    constexpr std::int64_t kMaxInteger = std::int64_t{1} << 31;
    if (value != nullptr && value->is_number_integer() && value->get<double>() >= 0 &&
        value->get<double>() <= static_cast<double>(kMaxInteger))
      return value->get<std::int64_t>();
    wrong(*names.begin(), value, "a number from 0 to 2^31");
    return 0;
  }
  double number(std::initializer_list<const char*> names, std::optional<double> otherwise = {}) {
    const json* value = find(names);
    if (value == nullptr && otherwise) return *otherwise;
    // Computation is in f32, where a larger value is infinite.
    if (value != nullptr && value->is_number() && std::abs(value->get<double>()) <= kMaxFloat)
      return value->get<double>();
    wrong(*names.begin(), value, "a number");
    return 0;
  }
  /// A number that is above 0 in f32 too.
  float positive(std::initializer_list<const char*> names, std::optional<double> otherwise = {}) {
    const std::size_t before = problems_.size();
    const auto n = static_cast<float>(number(names, otherwise));
    if (!(n > 0) && problems_.size() == before) wrong(*names.begin(), find(names), "above 0");
    return n;
  }
  bool flag(const char* name, bool otherwise) {
    const json* value = find({name});
    if (value == nullptr) return otherwise;
    if (value->is_boolean()) return value->get<bool>();
    wrong(name, value, "true or false");
    return otherwise;
  }
  std::string text(std::initializer_list<const char*> names, const std::string& otherwise) {
    const json* value = find(names);
    if (value == nullptr) return otherwise;
    if (value->is_string()) return value->get<std::string>();
    wrong(*names.begin(), value, "a string");
    return otherwise;
  }
  /// A setting for which only one value is supported.
  void must_be(const char* name, bool want, bool otherwise) {
    if (flag(name, otherwise) != want) unsupported(str(name, " is ", want ? "false" : "true"));
  }
  void must_be_one_of(const char* name, const std::string& value, std::span<const std::string_view> allowed) {
    for (const std::string_view known : allowed)
      if (value == known) return;
    unsupported(str(name, " is ", value));
  }
  void unsupported(const std::string& what) {
    problems_ += str(problems_.empty() ? "" : "\n", what, ", which is not supported");
  }

  Status status() const {
    if (problems_.empty()) return {};
    return Status::error(broken_ ? Code::invalid : Code::unsupported, problems_);
  }
  Keys within(const json& object, std::string section = {}) const { return Keys(object, std::move(section)); }
  void take(const Keys& other) {
    if (other.problems_.empty()) return;
    problems_ += str(problems_.empty() ? "" : "\n", other.problems_);
    broken_ = broken_ || other.broken_;
  }

 private:
  void wrong(const char* name, const json* value, const char* want) {
    broken_ = true;
    problems_ +=
        str(problems_.empty() ? "" : "\n", section_, name, " is ",
            value == nullptr ? std::string("missing") : value->dump().substr(0, 80), "; it must be ", want);
  }
  const json& object_;
  const std::string section_;
  std::string problems_;
  bool broken_ = false;
};

}  // namespace strata::detail
