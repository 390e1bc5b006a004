#include "text/byte_alphabet.h"

#include <array>
#include <cstddef>
#include <cstdint>

#include <strata/runtime/utf8.h>

namespace strata::detail {
namespace {

constexpr bool stands_for_itself(unsigned b) noexcept {
  return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xFF && b != 0xAD);
}

struct Alphabet {
  std::array<char32_t, 256> letter{};      // indexed by byte
  std::array<std::int16_t, 0x144> byte{};  // indexed by letter; -1: not in the alphabet
};
constexpr Alphabet make_alphabet() noexcept {
  Alphabet out;
  for (auto& b : out.byte) b = -1;
  char32_t next = 0x100;
  for (unsigned b = 0; b < 256; ++b) {
    out.letter[b] = stands_for_itself(b) ? char32_t{b} : next++;
    out.byte[out.letter[b]] = static_cast<std::int16_t>(b);
  }
  return out;
}
constexpr Alphabet kAlphabet = make_alphabet();
static_assert(kAlphabet.letter[' '] == 0x120 && kAlphabet.letter['\n'] == 0x10A);

}  // namespace

std::string bytes_to_alphabet(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) append_utf8(out, kAlphabet.letter[static_cast<unsigned char>(c)]);
  return out;
}

std::optional<std::string> alphabet_to_bytes(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    if (point.value >= kAlphabet.byte.size() || kAlphabet.byte[point.value] < 0) return std::nullopt;
    out += static_cast<char>(kAlphabet.byte[point.value]);
    at += point.length;
  }
  return out;
}

}  // namespace strata::detail
