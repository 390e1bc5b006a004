#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <strata/serve/api_error.h>

namespace strata::detail {

/// The value of a number that is whole, as 4 and 4.0 are; nullopt for others, and beyond 64 bits.
std::optional<std::int64_t> whole_number(const nlohmann::json& value);

/// Reads the fields of one object of a request, and keeps the first error. Null counts as absent.
class RequestFields {
 public:
  using Json = nlohmann::json;
  /// `object` must be an object and outlive this. `path`: what its fields are named after, as "messages[0].".
  explicit RequestFields(const Json& object, std::string path = {})
      : object_(object), path_(std::move(path)) {}

  /// Null if the field is absent.
  const Json* find(std::string_view name);
  std::optional<bool> flag(std::string_view name);
  std::optional<std::string> text(std::string_view name);
  std::optional<std::int64_t> integer(std::string_view name, std::int64_t min, std::int64_t max);
  std::optional<double> number(std::string_view name, double min, double max);
  /// A field that cannot be honoured: only the values in `neutral`, an array of JSON, are accepted.
  void accept_only(std::string_view name, std::string_view neutral);
  /// A field that does not matter for the answer.
  void ignore(std::string_view name) { (void)find(name); }
  /// Fails for a field that none of the calls above has named.
  void refuse_others();

  void fail(std::string_view name, const std::string& what, std::string code = {});
  /// Keeps the error of an object inside this one.
  void adopt(const std::optional<ApiError>& error) {
    if (!error_) error_ = error;
  }
  const std::optional<ApiError>& error() const noexcept { return error_; }
  const std::string& path() const noexcept { return path_; }

 private:
  void fail_type(std::string_view name, const Json& value, std::string_view wanted);

  const Json& object_;
  const std::string path_;
  std::vector<std::string_view> known_;
  std::optional<ApiError> error_;
};

}  // namespace strata::detail
