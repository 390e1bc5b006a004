#pragma once

#include <span>
#include <string>

#include <strata/runtime/str.h>

namespace strata::detail {

/// Formats ascending numbers as Linux does: "0-7,16".
inline std::string number_list(std::span<const int> numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += str(text.empty() ? "" : ",", numbers[i]);
    if (last > i) text += str("-", numbers[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace strata::detail
