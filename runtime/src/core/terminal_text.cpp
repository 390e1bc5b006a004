#include <strata/runtime/terminal_text.h>

#include <cstddef>
#include <cstdint>

namespace strata {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// A character and its bytes; no bytes: there is no valid character.
struct Character {
  std::uint32_t code = 0;
  std::size_t bytes = 0;
};

Character character_at(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::size_t n = byte(0) < 0x80 ? 1 : byte(0) < 0xC2 ? 0 : byte(0) < 0xE0 ? 2 : byte(0) < 0xF0 ? 3 : 4;
  if (n == 0 || n > text.size() || byte(0) > 0xF4) return {};
  std::uint32_t code = n == 1 ? byte(0) : byte(0) & (0x7FU >> n);
  for (std::size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return {};
    code = code << 6U | (byte(i) & 0x3FU);
  }
  constexpr std::uint32_t kFirst[] = {0, 0, 0x80, 0x800, 0x10000};  // the first code point that needs n bytes
  if (code < kFirst[n] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return {};
  return {code, n};
}

bool is_harmless(std::uint32_t code) {
  if (code == '\n' || code == '\t') return true;
  if (code < 0x20 || (code >= 0x7F && code < 0xA0)) return false;
  return !(code >= 0x2028 && code <= 0x202E) && !(code >= 0x2066 && code <= 0x2069);
}

}  // namespace

std::string terminal_text(std::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    const Character next = character_at(text);
    if (text.starts_with("\r\n")) {
      text.remove_prefix(1);
      continue;
    }
    const std::size_t n = next.bytes == 0 ? 1 : next.bytes;
    shown += next.bytes > 0 && is_harmless(next.code) ? text.substr(0, n) : kReplacement;
    text.remove_prefix(n);
  }
  return shown;
}

}  // namespace strata
