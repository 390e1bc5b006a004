#pragma once

#include <concepts>
#include <string>
#include <string_view>

#include <strata/runtime/str.h>

namespace strata {

/// "1 thread", "2 threads", "3 micro-batches". For nouns whose plural ends in s, or in es after a hiss.
template <std::integral N>
std::string plural(N n, std::string_view noun) {
  if (n == 1) return str("1 ", noun);
  const bool hisses =
      noun.ends_with("ch") || noun.ends_with("sh") || noun.ends_with('s') || noun.ends_with('x');
  return str(n, " ", noun, hisses ? "es" : "s");
}

/// A whole number with a comma between thousands: "12,292".
template <std::integral N>
std::string grouped(N n) {
  std::string text = str(n);
  for (std::size_t at = text.size(); at > 3 + (text.front() == '-' ? 1U : 0U);) text.insert(at -= 3, 1, ',');
  return text;
}
/// plural() of a grouped() number.
template <std::integral N>
std::string plural_grouped(N n, std::string_view noun) {
  return grouped(n) + plural(n, noun).substr(str(n).size());
}

}  // namespace strata
