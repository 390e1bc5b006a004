#include "pretokenizer.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "unicode_ranges.h"
#include "utf8.h"

namespace strata::detail {
namespace {

enum class Class : std::uint8_t { space, letter, number, other };

constexpr bool is_ascii_space(unsigned char c) noexcept { return c == ' ' || (c >= '\t' && c <= '\r'); }

Class class_of(char32_t point) noexcept {
  if (point < 0x80) {
    const auto c = static_cast<unsigned char>(point);
    if (is_ascii_space(c)) return Class::space;
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') return Class::letter;
    return c >= '0' && c <= '9' ? Class::number : Class::other;
  }
  if (point == kNoCodePoint) return Class::other;
  const bool space = point == 0x85 || point == 0xA0 || point == 0x1680 ||
                     (point >= 0x2000 && point <= 0x200A) || point == 0x2028 || point == 0x2029 ||
                     point == 0x202F || point == 0x205F || point == 0x3000;
  if (space) return Class::space;
  if (is_letter(point)) return Class::letter;
  return is_number(point) ? Class::number : Class::other;
}

struct Run {
  std::size_t end;
  std::size_t last;  // where its last character begins
};
/// The characters of one class from `at`.
Run run_of(std::string_view text, std::size_t at, Class wanted) noexcept {
  Run run{at, at};
  const std::size_t limit = std::min(text.size(), at + kMaxPieceBytes);
  while (run.end < limit) {
    const CodePoint point = code_point_at(text, run.end);
    if (class_of(point.value) != wanted) break;
    run.last = run.end;
    run.end += point.length;
  }
  return run;
}

std::size_t contraction_length(std::string_view rest) noexcept {
  constexpr std::array<std::string_view, 7> kContractions = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
  for (const std::string_view c : kContractions)
    if (rest.starts_with(c)) return c.size();
  return 0;
}

std::size_t piece_end(std::string_view text, std::size_t at) noexcept {
  if (const std::size_t n = contraction_length(text.substr(at)); n != 0) return at + n;
  // An optional plain space joins the word that follows.
  const std::size_t word = at + (text[at] == ' ' && at + 1 < text.size() ? 1 : 0);
  if (const Class c = class_of(code_point_at(text, word).value); c != Class::space)
    return run_of(text, word, c).end;
  const Run spaces = run_of(text, at, Class::space);
  // \s+(?!\S): before a word the last space is left to it; a single one has nothing to give up.
  return spaces.end == text.size() || spaces.last == at ? spaces.end : spaces.last;
}

}  // namespace

std::string_view PieceSplitter::next() noexcept {
  if (at_ == text_.size()) return {};
  const std::size_t begin = at_;
  at_ = piece_end(text_, begin);
  return text_.substr(begin, at_ - begin);
}

std::size_t last_safe_cut(std::string_view text) noexcept {
  for (std::size_t n = text.size(); n-- > 1;) {
    const auto before = static_cast<unsigned char>(text[n - 1]);
    // Non-ASCII spaces exist, so what stands before must be ASCII to be known not to be one.
    if (is_ascii_space(static_cast<unsigned char>(text[n])) && before < 0x80 && !is_ascii_space(before))
      return n;
  }
  return 0;
}

}  // namespace strata::detail
