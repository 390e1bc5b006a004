#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace strata {

inline constexpr char32_t kNoCodePoint = 0xFFFFFFFF;

struct CodePoint {
  char32_t value;      // kNoCodePoint for a byte with which no well-formed sequence begins
  std::size_t length;  // in bytes; 1 for such a byte
};
/// The code point at `at`, by Unicode 15, table 3-7: no overlong forms, no surrogates, nothing above
/// U+10FFFF.
CodePoint code_point_at(std::string_view text, std::size_t at) noexcept;
void append_utf8(std::string& out, char32_t point);

/// Offset of the first byte that is not well-formed UTF-8; the size if there is none.
std::size_t first_non_utf8(std::string_view text) noexcept;
inline bool is_utf8(std::string_view text) noexcept { return first_non_utf8(text) == text.size(); }

}  // namespace strata
