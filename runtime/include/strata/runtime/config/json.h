#pragma once

#include <string>
#include <string_view>

namespace strata {

/// Appends `text` as a quoted JSON string. Bytes that are not valid UTF-8 become U+FFFD, so that the output
/// always parses.
void append_json_string(std::string& out, std::string_view text);
/// Returns `text` as a quoted JSON string.
std::string json_string(std::string_view text);

}  // namespace strata
