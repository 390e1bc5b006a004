#pragma once

namespace strata::detail {

/// General category L* (\p{L} in a regular expression).
bool is_letter(char32_t point) noexcept;
/// General category N* (\p{N}).
bool is_number(char32_t point) noexcept;
/// White_Space (\s).
bool is_space(char32_t point) noexcept;
/// \w as defined by Rust's regex crate.
bool is_word(char32_t point) noexcept;
/// False if NFC never changes the character in any context, so that a text of such characters is in NFC.
bool may_change_in_nfc(char32_t point) noexcept;

}  // namespace strata::detail
