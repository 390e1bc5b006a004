#pragma once

#include <string>
#include <string_view>

namespace strata {

/// Whether the bytes are well-formed UTF-8 (no surrogates, no overlong forms).
bool is_utf8(std::string_view text) noexcept;

/// Appends `text` as a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD, so that what is
/// written always parses.
void append_json_string(std::string& out, std::string_view text);
/// The same as a value.
std::string json_string(std::string_view text);

}  // namespace strata
