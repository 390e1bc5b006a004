#pragma once

#include <charconv>
#include <cstddef>
#include <string_view>
#include <system_error>

#include <strata/runtime/dtype.h>
#include <strata/runtime/status.h>
#include <strata/runtime/str.h>

namespace strata::kernels::detail {

/// Reads the space-separated fields of a line in order. After a malformed field is_done() stays false.
class FieldReader {
 public:
  explicit FieldReader(std::string_view line) : left_(line) {}

  template <class Number>
  Number number(int base = 10) {
    const std::string_view word = next();
    Number value{};
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, base);
    if (word.empty() || error != std::errc() || end != word.data() + word.size()) fine_ = false;
    return value;
  }
  bool flag() {
    const auto value = number<unsigned>();
    fine_ = fine_ && value <= 1;
    return value == 1;
  }
  DType dtype() {
    const std::string_view word = next();
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::e4m3, DType::e5m2})
      if (word == to_string(dtype)) return dtype;
    fine_ = false;
    return DType::f32;
  }
  std::string_view word() {
    const std::string_view found = next();
    fine_ = fine_ && !found.empty();
    return found;
  }
  bool is_done() const noexcept { return fine_ && left_.empty(); }

 private:
  std::string_view next() {
    const std::size_t space = left_.find(' ');
    const std::string_view word = left_.substr(0, space);
    left_ = space == std::string_view::npos ? std::string_view() : left_.substr(space + 1);
    return word;
  }
  std::string_view left_;
  bool fine_ = true;
};

/// Calls parse(line) for every line of a record. Errors: `invalid`, naming the first line for which it
/// returns false, which is not `what`.
template <class Parse>
Status for_each_line(std::string_view text, std::string_view what, const Parse& parse) {
  for (std::size_t at = 0, number = 1; at < text.size(); ++number) {
    const std::string_view line = text.substr(at, text.find('\n', at) - at);
    at += line.size() + 1;
    if (!parse(line))
      return Status::error(Code::invalid, str("line ", number, " is not ", what, ": \"", line.substr(0, 80),
                                              line.size() > 80 ? "...\"" : "\""));
  }
  return Status::ok();
}

/// Whether a line of a record of algorithms and plans is about attention; all other lines are GEMMs.
inline bool is_attention(std::string_view line) { return line.starts_with("attention "); }

}  // namespace strata::kernels::detail
