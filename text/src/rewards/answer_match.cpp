#include "rewards/answer_match.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <memory>

#include <utf8proc.h>

namespace strata::detail {
namespace {

constexpr std::int64_t kLargestExponent = 1'000'000;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// The code point at a byte of a valid text, and its bytes.
struct Point {
  utf8proc_int32_t code = -1;
  std::size_t bytes = 0;
};
Point point_at(std::string_view text, std::size_t at) {
  Point point;
  const auto n = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                                  static_cast<utf8proc_ssize_t>(text.size() - at), &point.code);
  point.bytes = n > 0 ? static_cast<std::size_t>(n) : 1;
  return point;
}
Point point_before(std::string_view text, std::size_t at) {
  std::size_t begin = at - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0U) == 0x80U) --begin;
  return point_at(text, begin);
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// The digits of a script follow each other from 0 to 9.
int digit_of(utf8proc_int32_t code) {
  if (utf8proc_category(code) != UTF8PROC_CATEGORY_ND) return -1;
  int value = 0;
  while (value < 9 && utf8proc_category(code - value - 1) == UTF8PROC_CATEGORY_ND) ++value;
  return value;
}

bool is_superscript(utf8proc_int32_t code) {
  return code == 0xB2 || code == 0xB3 || code == 0xB9 || (code >= 0x2070 && code <= 0x2079);
}
bool is_minus(utf8proc_int32_t code) { return code == 0x2212 || code == 0xFE63 || code == 0xFF0D; }
/// Spaces that do not break a line, which some languages write between the groups of a number.
bool joins_groups(utf8proc_int32_t code) { return code == 0xA0 || code == 0x2009 || code == 0x202F; }

// Replaces the characters that compatibility normalization would change too much: 5 to the power of 2 is not
// 52, and a space in a number is no space between words.
std::string prepared(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const Point point = point_at(text, at);
    const std::string_view bytes = text.substr(at, point.bytes);
    at += point.bytes;
    const bool after_digit = !out.empty() && is_digit(out.back());
    if (point.code < 0)
      out += kReplacement;
    else if (is_minus(point.code))
      out += '-';
    else if (joins_groups(point.code) && after_digit && at < text.size() && is_digit(text[at]))
      out += ',';
    else if (const int digit = point.code < 0x80 ? -1 : digit_of(point.code); digit >= 0)
      out += static_cast<char>('0' + digit);
    else
      (out += is_superscript(point.code) && after_digit ? "^" : "") += bytes;
  }
  return out;
}

/// Letters of scripts that write no spaces between words.
bool is_unspaced(utf8proc_int32_t code) {
  constexpr std::array<std::pair<utf8proc_int32_t, utf8proc_int32_t>, 10> kRanges = {
      {{0x0E00, 0x0EFF},      // Thai, Lao
       {0x1000, 0x109F},      // Myanmar
       {0x1780, 0x17FF},      // Khmer
       {0x2E80, 0x303A},      // radicals, marks of iteration
       {0x3040, 0x30FF},      // kana
       {0x31F0, 0x31FF},      // kana
       {0x3400, 0x9FFF},      // Han
       {0xF900, 0xFAFF},      // Han
       {0x1B000, 0x1B16F},    // kana
       {0x20000, 0x3FFFF}}};  // Han
  return std::any_of(kRanges.begin(), kRanges.end(),
                     [&](const auto& range) { return code >= range.first && code <= range.second; });
}

bool is_word_point(utf8proc_int32_t code) {
  if (code == '_' || code == 0xFFFD) return true;
  const auto category = utf8proc_category(code);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NO && !is_unspaced(code);
}

bool ends_word(std::string_view text, std::size_t at) {
  return at == 0 || !is_word_point(point_before(text, at).code);
}
bool begins_word(std::string_view text, std::size_t at) {
  return at == text.size() || !is_word_point(point_at(text, at).code);
}

bool has_words(std::string_view text, std::string_view words) {
  const bool inner_begin = !is_word_point(point_at(words, 0).code),
             inner_end = !is_word_point(point_before(words, words.size()).code);
  for (std::size_t at = text.find(words); at != std::string_view::npos; at = text.find(words, at + 1)) {
    const std::size_t end = at + words.size();
    if ((inner_begin || ends_word(text, at)) && (inner_end || begins_word(text, end))) return true;
  }
  return false;
}

/// Reads a number from the beginning of a text.
class NumberReader {
 public:
  explicit NumberReader(std::string_view text) : text_(text) {}

  std::optional<Decimal> read() {
    const std::size_t begin = at_;
    skip_sign();
    skip_currency();
    if (at_ == begin || text_[at_ - 1] != '-') skip_sign();  // $-5
    if (!read_digits()) return std::nullopt;
    read_exponent();
    normalize();
    return number_;
  }
  std::size_t end() const noexcept { return at_; }

 private:
  char now(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  void skip_sign() {
    if (now() != '-' && now() != '+') return;
    number_.negative = now() == '-';
    ++at_;
  }
  void skip_currency() {
    if (at_ >= text_.size()) return;
    const Point point = point_at(text_, at_);
    if (utf8proc_category(point.code) != UTF8PROC_CATEGORY_SC) return;
    at_ += point.bytes;
    while (now() == ' ') ++at_;
  }
  std::size_t digits_ahead(std::size_t from) const {
    std::size_t n = 0;
    while (is_digit(now(from + n))) ++n;
    return n;
  }
  void take_digits(std::size_t n) {
    number_.digits.append(text_.substr(at_, n));
    at_ += n;
  }
  bool read_digits() {
    const std::size_t first = digits_ahead(0);
    take_digits(first);
    if (first >= 1 && first <= 3)
      while (now() == ',' && digits_ahead(1) == 3) {
        ++at_;
        take_digits(3);
      }
    const std::size_t fraction = now() == '.' ? digits_ahead(1) : 0;
    if (fraction == 0) return first > 0;
    ++at_;
    take_digits(fraction);
    number_.exponent = -static_cast<std::int64_t>(fraction);
    return true;
  }
  void read_exponent() {
    const std::size_t sign = now(1) == '-' || now(1) == '+' ? 1 : 0;
    const std::size_t n = now() == 'e' ? digits_ahead(1 + sign) : 0;
    if (n == 0) return;
    std::int64_t value = kLargestExponent;
    const char* const begin = text_.data() + at_ + 1 + sign;
    (void)std::from_chars(begin, begin + n, value);
    value = std::min(value, kLargestExponent);
    number_.exponent += now(1) == '-' ? -value : value;
    at_ += 1 + sign + n;
  }
  void normalize() {
    std::string& digits = number_.digits;
    digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
    while (digits.ends_with('0')) {
      digits.pop_back();
      ++number_.exponent;
    }
    if (digits.empty()) number_ = {};
  }

  const std::string_view text_;
  std::size_t at_ = 0;
  Decimal number_;
};

bool may_begin_number(std::string_view text, std::size_t at) {
  const char c = text[at];
  if (is_digit(c)) return true;
  if (c == '-' || c == '+' || c == '.') return at + 1 < text.size();
  return utf8proc_category(point_at(text, at).code) == UTF8PROC_CATEGORY_SC;
}

bool goes_on(std::string_view text, std::size_t at) {
  return !begins_word(text, at) || (at + 1 < text.size() && text[at] == '.' && is_digit(text[at + 1]));
}

// A hyphen behind a word or a number is no sign: 10-3, covid-19.
bool is_sign_here(std::string_view text, std::size_t at) { return ends_word(text, at); }

bool has_number(std::string_view text, const Decimal& wanted) {
  for (std::size_t at = 0; at < text.size();) {
    const bool has_sign = text[at] == '-' || text[at] == '+';
    if (!may_begin_number(text, at) || (has_sign && !is_sign_here(text, at))) {
      at += point_at(text, at).bytes;
      continue;
    }
    NumberReader reader(text.substr(at));
    const auto number = reader.read();
    if (!number) {
      at += point_at(text, at).bytes;
      continue;
    }
    const std::size_t end = at + reader.end();
    if (*number == wanted && ends_word(text, at) && !goes_on(text, end)) return true;
    // The digits of a longer word or number are none by themselves: 42nd, 1.2.3.
    at = end;
    while (goes_on(text, at)) at += point_at(text, at).bytes;
  }
  return false;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const std::size_t begin = std::min(text.find_first_not_of(kSpaces), text.size());
  return text.substr(begin, text.find_last_not_of(kSpaces) + 1 - begin);
}

}  // namespace

std::string folded(std::string_view text) {
  const std::string ready = prepared(text);
  utf8proc_uint8_t* made = nullptr;
  constexpr auto kOptions = static_cast<utf8proc_option_t>(
      UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT | UTF8PROC_CASEFOLD | UTF8PROC_IGNORE);
  const utf8proc_ssize_t n = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(ready.data()),
                                          static_cast<utf8proc_ssize_t>(ready.size()), &made, kOptions);
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owned(made, std::free);
  return n < 0 ? ready : std::string(reinterpret_cast<const char*>(made), static_cast<std::size_t>(n));
}

std::optional<Decimal> decimal_of(std::string_view text) {
  text = trimmed(text);
  NumberReader reader(text);
  const auto number = reader.read();
  if (!number) return std::nullopt;
  std::string_view rest = trimmed(text.substr(reader.end()));
  if (rest.starts_with('%')) rest = rest.substr(1);
  if (!rest.empty() && utf8proc_category(point_at(rest, 0).code) == UTF8PROC_CATEGORY_SC)
    rest = rest.substr(point_at(rest, 0).bytes);
  return rest.empty() || rest == "." ? number : std::nullopt;
}

std::string wanted_answer(std::string_view answer) {
  constexpr std::string_view kMark = "####";
  if (const std::size_t mark = answer.rfind(kMark); mark != std::string_view::npos)
    answer = answer.substr(mark + kMark.size());
  return std::string(trimmed(folded(trimmed(answer))));
}

bool has_answer(std::string_view text, std::string_view wanted) {
  if (wanted.empty()) return false;
  const auto number = decimal_of(wanted);
  return number ? has_number(text, *number) : has_words(text, wanted);
}

}  // namespace strata::detail
