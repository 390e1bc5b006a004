#pragma once

#include <string>
#include <string_view>

namespace strata {

/// A text as a terminal may show it, whatever a model, a file's name or a client put into it: escape
/// sequences and other control characters (C0 but newline and tab, DEL, C1), marks that change the direction
/// of text (U+202A to U+202E, U+2066 to U+2069), line ends of Unicode (U+2028, U+2029) and bytes that are no
/// UTF-8 become U+FFFD. A carriage return before a newline is left out.
std::string terminal_text(std::string_view text);

}  // namespace strata
