#pragma once

namespace strata::detail {

/// General category L* (a regex's \p{L}).
bool is_letter(char32_t point) noexcept;
/// General category N* (a regex's \p{N}).
bool is_number(char32_t point) noexcept;
/// White_Space (a regex's \s).
bool is_space(char32_t point) noexcept;
/// A regex's \w, as Rust's regex crate has it.
bool is_word(char32_t point) noexcept;
/// False where a character is the same in NFC whatever stands around it, so that a text of such is NFC
/// already.
bool may_change_in_nfc(char32_t point) noexcept;

}  // namespace strata::detail
