#pragma once

#include <optional>
#include <span>
#include <string>

namespace strata::detail {

/// An integer in JSON that 64 bits do not hold. The parser makes a floating-point number of it, whose digits
/// are others.
struct LargeInteger {
  std::string key;     ///< the nearest one; empty outside of objects
  std::string digits;  ///< as they are written
};

/// The first one of a text that has been parsed; with `keys`, only of those of the outermost object.
std::optional<LargeInteger> large_integer_in(const std::string& text, std::span<const std::string> keys = {});
/// "'id' is 18446744073709551616, ...": why it is refused.
std::string why_refused(const LargeInteger& found);

}  // namespace strata::detail
