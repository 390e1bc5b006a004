#pragma once

namespace strata::detail {

/// General category L* (a regex's \p{L}).
bool is_letter(char32_t point) noexcept;
/// General category N* (a regex's \p{N}).
bool is_number(char32_t point) noexcept;

}  // namespace strata::detail
