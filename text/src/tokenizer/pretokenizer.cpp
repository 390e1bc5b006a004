#include "tokenizer/pretokenizer.h"

#include <algorithm>
#include <array>

#include "text/unicode_ranges.h"
#include <strata/runtime/utf8.h>

namespace strata::detail {
namespace {

enum class Class : std::uint8_t { space, letter, number, other };

constexpr bool is_ascii_space(unsigned char c) noexcept { return c == ' ' || (c >= '\t' && c <= '\r'); }
constexpr bool is_newline(char c) noexcept { return c == '\n' || c == '\r'; }

constexpr std::array<Class, 128> make_ascii() noexcept {
  std::array<Class, 128> out{};
  for (unsigned c = 0; c < 128; ++c) {
    const bool letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
    out[c] = is_ascii_space(static_cast<unsigned char>(c)) ? Class::space
             : letter                                      ? Class::letter
             : c >= '0' && c <= '9'                        ? Class::number
                                                           : Class::other;
  }
  return out;
}
constexpr std::array<Class, 128> kAscii = make_ascii();

struct Char {
  Class kind;
  std::size_t length;
};
Char char_at(std::string_view text, std::size_t at) noexcept {
  if (const auto c = static_cast<unsigned char>(text[at]); c < 0x80) return {kAscii[c], 1};
  const CodePoint point = code_point_at(text, at);
  if (point.value == kNoCodePoint) return {Class::other, 1};
  const Class kind = is_letter(point.value)   ? Class::letter
                     : is_space(point.value)  ? Class::space
                     : is_number(point.value) ? Class::number
                                              : Class::other;
  return {kind, point.length};
}

struct Run {
  std::size_t end;
  std::size_t last;  // offset of its last character
};
/// The run of at most `most` characters of one class from `at`.
Run run_of(std::string_view text, std::size_t at, Class wanted,
           std::size_t most = kMaxPretokenBytes) noexcept {
  Run run{at, at};
  const std::size_t limit = std::min(text.size(), at + kMaxPretokenBytes);
  while (run.end < limit && most-- > 0) {
    const Char c = char_at(text, run.end);
    if (c.kind != wanted) break;
    run.last = run.end;
    run.end += c.length;
  }
  return run;
}

/// \s+(?!\S): before a word the last space is left to the word, unless it is the only one.
std::size_t spaces_end(std::string_view text, std::size_t at, const Run& spaces) noexcept {
  return spaces.end == text.size() || spaces.last == at ? spaces.end : spaces.last;
}

std::size_t contraction_length(std::string_view rest) noexcept {
  constexpr std::array<std::string_view, 7> kContractions = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
  if (rest.front() != '\'') return 0;
  for (const std::string_view c : kContractions)
    if (rest.starts_with(c)) return c.size();
  return 0;
}
/// The same, case-insensitive. The long s (U+017F) folds to s and is the only relevant character beyond
/// ASCII.
std::size_t caseless_contraction_length(std::string_view rest) noexcept {
  if (rest.size() < 2 || rest.front() != '\'') return 0;
  const auto lower = [&](std::size_t i) {
    return i < rest.size() ? static_cast<char>(static_cast<unsigned char>(rest[i]) | 0x20) : '\0';
  };
  const char a = lower(1);
  if (kAscii[static_cast<unsigned char>(rest[1]) & 0x7F] == Class::letter &&
      static_cast<unsigned char>(rest[1]) < 0x80) {
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    const char b = rest.size() > 2 && static_cast<unsigned char>(rest[2]) < 0x80 ? lower(2) : '\0';
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return 3;
    return 0;
  }
  return rest.substr(1).starts_with("\u017F") ? 3 : 0;
}

std::size_t gpt2_end(std::string_view text, std::size_t at) noexcept {
  if (const std::size_t n = contraction_length(text.substr(at)); n != 0) return at + n;
  // An optional plain space joins the word that follows.
  const std::size_t word = at + (text[at] == ' ' && at + 1 < text.size() ? 1 : 0);
  if (const Class c = char_at(text, word).kind; c != Class::space) return run_of(text, word, c).end;
  return spaces_end(text, at, run_of(text, at, Class::space));
}

/// The offset after the last newline, or `at` if there is none.
std::size_t after_last_newline(std::string_view text, std::size_t at, std::size_t end) noexcept {
  while (end > at && !is_newline(text[end - 1])) --end;
  return end;
}
std::size_t others_end(std::string_view text, std::size_t at) noexcept {
  std::size_t end = run_of(text, at, Class::other).end;
  const std::size_t limit = std::min(text.size(), end + kMaxPretokenBytes);
  while (end < limit && is_newline(text[end])) ++end;
  return end;
}
/// The form that cl100k introduced: a word includes one character before it, unless that is a newline.
std::size_t wide_end(std::string_view text, std::size_t at, std::size_t most_digits) noexcept {
  if (const std::size_t n = caseless_contraction_length(text.substr(at)); n != 0) return at + n;
  const Char first = char_at(text, at);
  if (first.kind == Class::letter) return run_of(text, at, Class::letter).end;
  if (first.kind == Class::number) return run_of(text, at, Class::number, most_digits).end;
  const std::size_t second = at + first.length;
  if (second < text.size() && !is_newline(text[at])) {
    const Class next = char_at(text, second).kind;
    if (next == Class::letter) return run_of(text, second, Class::letter).end;
    if (next == Class::other && text[at] == ' ') return others_end(text, second);
  }
  if (first.kind == Class::other) return others_end(text, at);
  const Run spaces = run_of(text, at, Class::space);
  const std::size_t line = after_last_newline(text, at, spaces.end);
  return line > at ? line : spaces_end(text, at, spaces);
}

struct Spelling {
  SplitRule rule;
  std::string_view regex;
};
// The first spelling of each rule is the one that is written. Possessive quantifiers change nothing here,
// since no other alternative can start with what backtracking would return. `\s*[\r\n]` equals the form with
// `+`, since \s* also matches newlines.
constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::array<Spelling, 8> kSpellings = {{
    {SplitRule::gpt2, kGpt2},
    {SplitRule::gpt2, R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {SplitRule::cl100k,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitRule::cl100k,
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitRule::cl100k,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"},
    {SplitRule::cl100k,
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"},
    {SplitRule::qwen2,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitRule::qwen2,
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
}};

}  // namespace

// What is between two digits is split by itself.
std::size_t PreTokenizer::digits_end() noexcept {
  if (const Char first = char_at(text_, at_); first.kind == Class::number) return at_ + first.length;
  if (part_end_ <= at_) {
    part_end_ = at_;
    for (Char c{}; part_end_ < text_.size(); part_end_ += c.length)
      if (c = char_at(text_, part_end_); c.kind == Class::number) break;
  }
  return gpt2_end(text_.substr(0, part_end_), at_);
}

std::string_view PreTokenizer::next() noexcept {
  if (at_ == text_.size()) return {};
  const std::size_t begin = at_;
  at_ = rule_ == SplitRule::gpt2     ? gpt2_end(text_, begin)
        : rule_ == SplitRule::digits ? digits_end()
                                     : wide_end(text_, begin, rule_ == SplitRule::qwen2 ? 1 : 3);
  return text_.substr(begin, at_ - begin);
}

std::string_view regex_of(SplitRule rule) noexcept {
  for (const Spelling& spelling : kSpellings)
    if (spelling.rule == rule) return spelling.regex;
  return {};
}

std::optional<SplitRule> rule_of_regex(std::string_view regex) noexcept {
  for (const Spelling& spelling : kSpellings)
    if (spelling.regex == regex) return spelling.rule;
  return std::nullopt;
}

namespace {

/// Whether the last character is whole and no space, of which there are some beyond ASCII.
bool ends_with_no_space(std::string_view text) noexcept {
  constexpr std::size_t kLongest = 4;
  std::size_t at = text.size() - 1;
  const auto continues = [&] { return (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80; };
  while (at > 0 && text.size() - at < kLongest && continues()) --at;
  const CodePoint last = code_point_at(text, at);
  return last.value != kNoCodePoint && at + last.length == text.size() && !is_space(last.value);
}

}  // namespace

std::size_t last_safe_cut(std::string_view text, SplitRule rule) noexcept {
  const bool wide = rule != SplitRule::gpt2 && rule != SplitRule::digits;
  for (std::size_t n = text.size(); n-- > 1;) {
    const auto before = static_cast<unsigned char>(text[n - 1]);
    const auto after = static_cast<unsigned char>(text[n]);
    // A word or a punctuation run never continues into a space. In the wide rules punctuation includes the
    // newlines after it.
    const bool word_ends = is_ascii_space(after) && ends_with_no_space(text.substr(0, n));
    if (word_ends && !(wide && is_newline(text[n]))) return n;
    // In the wide rules a line end also ends the pre-token; in Chinese text there is no other place to cut.
    // The next character must be complete, since a partial one at the end may still become a space.
    if (!wide || before != '\n' || is_ascii_space(after)) continue;
    if (const CodePoint point = code_point_at(text, n); point.value != kNoCodePoint && !is_space(point.value))
      return n;
  }
  return 0;
}

}  // namespace strata::detail
