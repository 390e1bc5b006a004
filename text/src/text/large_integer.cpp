#include "text/large_integer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <nlohmann/json.hpp>

#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

constexpr std::size_t kFewestDigits = 19;  // the digits of -9223372036854775809
constexpr std::size_t kShown = 80;

bool has_many_digits(std::string_view text) {
  std::size_t run = 0;
  for (const char c : text) {
    run = c >= '0' && c <= '9' ? run + 1 : 0;
    if (run == kFewestDigits) return true;
  }
  return false;
}

/// The parser's events; each returns whether to go on.
class Finder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Finder(std::span<const std::string> keys) : keys_(keys) {}

  bool number_float(double, const std::string& written) override {
    const std::size_t digits = written.find_first_not_of("-0123456789");
    const bool counts = keys_.empty() || std::find(keys_.begin(), keys_.end(), outermost_) != keys_.end();
    if (digits == std::string::npos && counts) found = LargeInteger{key_, written};
    return !found;
  }
  bool key(std::string& key) override {
    key_ = key;
    if (depth_ == 1) outermost_ = key;
    return true;
  }
  bool start_object(std::size_t) override { return enter(); }
  bool start_array(std::size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(std::int64_t) override { return true; }
  bool number_unsigned(std::uint64_t) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(nlohmann::json::binary_t&) override { return true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override {
    return false;
  }

  std::optional<LargeInteger> found;

 private:
  bool enter() {
    ++depth_;
    return true;
  }
  bool leave() {
    --depth_;
    return true;
  }

  std::span<const std::string> keys_;
  std::string key_, outermost_;
  int depth_ = 0;
};

}  // namespace

std::optional<LargeInteger> large_integer_in(const std::string& text, std::span<const std::string> keys) {
  if (!has_many_digits(text)) return std::nullopt;  // most texts are done here
  Finder finder(keys);
  (void)nlohmann::json::sax_parse(text, &finder);
  return finder.found;
}

std::string why_refused(const LargeInteger& found) {
  const std::string digits = found.digits.substr(0, kShown) + (found.digits.size() > kShown ? "..." : "");
  std::string key = found.key.substr(0, kShown);
  for (char& c : key)
    if (c < ' ' || c > '~') c = '?';
  return str(key.empty() ? "an integer is " : str("'", key, "' is "), digits,
             ", an integer of more than 64 bits, whose digits would be others: write it as a string");
}

}  // namespace strata::detail
