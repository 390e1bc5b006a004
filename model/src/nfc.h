#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace strata::detail {

/// The text in Unicode's normalization form C, or nothing where it is in it already. Bytes that are not UTF-8
/// stay as they are and nothing is composed across them.
std::optional<std::string> to_nfc(std::string_view text);

}  // namespace strata::detail
