#pragma once

#include <string_view>

namespace strata {

/// Returns the message of nlohmann's parser about a text without the name and number of its exception, which
/// say nothing to whoever wrote the text: "[json.exception.parse_error.101] parse error at line 2, column 5:
/// ...".
constexpr std::string_view json_problem(std::string_view what) noexcept {
  const std::size_t end = what.starts_with("[json.exception") ? what.find("] ") : std::string_view::npos;
  return end == std::string_view::npos ? what : what.substr(end + 2);
}

}  // namespace strata
