#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace strata::detail {

/// GPT-2's printable alphabet for bytes (encoder.py, bytes_to_unicode): printable Latin-1 bytes map to
/// themselves, the other 68 bytes to U+0100 onwards, in order. Vocabulary files write tokens in it: " the" is
/// "Ġthe".
std::string bytes_to_alphabet(std::string_view bytes);
/// Returns nullopt if a character of `text` represents no byte.
std::optional<std::string> alphabet_to_bytes(std::string_view text);

}  // namespace strata::detail
