#pragma once

#include <string>

#include <fmt/core.h>

namespace strata {

/// Concatenates the parts into one string: `str("chunk ", 3, ": ", n, " bytes stored, ", m, " given")`.
template <class... Parts>
std::string str(const Parts&... parts) {
  std::string out;
  (fmt::format_to(std::back_inserter(out), "{}", parts), ...);
  return out;
}

}  // namespace strata
