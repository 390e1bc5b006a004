#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace strata::detail {

/// Returns the text in Unicode normalization form C, or nullopt if it already is. Bytes that are not UTF-8
/// stay unchanged, and nothing is composed across them.
std::optional<std::string> to_nfc(std::string_view text);

}  // namespace strata::detail
