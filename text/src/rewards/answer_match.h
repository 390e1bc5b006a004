#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace strata::detail {

/// A text as it is compared: NFKC with case folding (Unicode 15, 3.13, toNFKC_Casefold), decimal digits of
/// every script as those of ASCII, and the minus sign as a hyphen. Bytes that are no UTF-8 become U+FFFD.
std::string folded(std::string_view text);

/// A decimal number; equal numbers have equal fields.
struct Decimal {
  bool negative = false;
  std::string digits;         ///< without zeros at both ends; empty: 0
  std::int64_t exponent = 0;  ///< the exponent of the last digit
  friend bool operator==(const Decimal&, const Decimal&) = default;
};
/// The number that a folded text is, as a whole: a sign, a currency sign, digits, which may be in groups of
/// three, a fraction, an exponent, and a percent sign. Nullopt for anything else.
std::optional<Decimal> decimal_of(std::string_view text);

/// The text that the answer of a record asks for: the folded text behind the last "####", as GSM8K has it, or
/// all of it.
std::string wanted_answer(std::string_view answer);

/// Whether the folded text has what is wanted: if that is a number, a number of the same value, else the same
/// words, which are not parts of others. docs/guide/align.md states the rule.
bool has_answer(std::string_view text, std::string_view wanted);

}  // namespace strata::detail
