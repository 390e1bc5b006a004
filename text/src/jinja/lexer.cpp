#include "jinja/lexer.h"

#include <algorithm>

#include <strata/runtime/str.h>

#include <strata/runtime/utf8.h>

namespace strata::detail::jinja {
namespace {

constexpr std::string_view kSpaces = " \t\n\v\f\r";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// Line ends as Jinja reads them, without one at the end.
std::string normalized(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalized(source)) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size()) {
      const std::size_t tag = next_tag();
      add_data(tag);
      if (tag == std::string::npos) break;
      STRATA_TRY(read_tag());
    }
    add(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  Status wrong(std::string_view what) const {
    return Status::error(Code::invalid, str("line ", line_, ": ", what));
  }
  bool follows(std::string_view text) const {
    return std::string_view(source_).substr(at_).starts_with(text);
  }
  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void advance(std::size_t n) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(at_ + n), '\n'));
    at_ += n;
  }
  void skip_spaces() {
    const std::size_t next = std::min(source_.find_first_not_of(kSpaces, at_), source_.size());
    advance(next - at_);
  }

  std::size_t next_tag() const {
    for (std::size_t i = source_.find('{', at_); i != std::string::npos; i = source_.find('{', i + 1))
      if (i + 1 < source_.size() && (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#'))
        return i;
    return std::string::npos;
  }

  /// Adds the text before a tag, without the white space that the tag strips, and goes there.
  void add_data(std::size_t tag) {
    std::string text = source_.substr(at_, tag == std::string::npos ? tag : tag - at_);
    const std::size_t whole = text.size();
    if (tag != std::string::npos) {
      const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      if (sign == '-') {
        text.erase(text.find_last_not_of(kSpaces) + 1);
      } else if (sign != '+' && source_[tag + 1] != '{') {
        const std::size_t line = text.rfind('\n') + 1;
        if ((line > 0 || at_line_start_) && text.find_first_not_of(kSpaces, line) == std::string::npos)
          text.erase(line);
      }
    }
    if (!text.empty()) add(TokenKind::data, std::move(text));
    advance(whole);
  }

  Status read_tag() {
    const char kind = source_[at_ + 1];
    if (kind == '#') return skip_comment();
    if (kind == '%' && is_raw()) return read_raw();
    add(kind == '{' ? TokenKind::begin_print : TokenKind::begin_block, "");
    advance(2);
    if (follows("-") || follows("+")) advance(1);
    const std::string_view end = kind == '{' ? "}}" : "%}";
    const std::size_t depth = brackets_.size();
    for (;;) {
      skip_spaces();
      if (at_ >= source_.size()) return wrong(str("a tag has no end: '", end, "' is missing"));
      if (brackets_.size() == depth && (follows(end) || follows(str("-", end)) || follows(str("+", end)))) {
        add(kind == '{' ? TokenKind::end_print : TokenKind::end_block, "");
        end_tag(end, kind == '%');
        return {};
      }
      STRATA_TRY(read_token());
    }
  }

  /// Passes the end of a tag. `trims`: one line break behind it is removed.
  void end_tag(std::string_view end, bool trims) {
    const bool strips = follows("-"), keeps = follows("+");
    advance((strips || keeps ? 1 : 0) + end.size());
    at_line_start_ = false;
    if (strips) {
      const std::size_t before = at_;
      skip_spaces();
      at_line_start_ = at_ > before && source_[at_ - 1] == '\n';
    } else if (trims && !keeps && follows("\n")) {
      advance(1);
      at_line_start_ = true;
    }
  }

  Status skip_comment() {
    const std::size_t end = source_.find("#}", at_ + 2);
    if (end == std::string::npos) return wrong("a comment has no end: '#}' is missing");
    const bool signs = end > at_ + 2 && (source_[end - 1] == '-' || source_[end - 1] == '+');
    advance(end - (signs ? 1 : 0) - at_);
    end_tag("#}", true);
    return {};
  }

  bool is_raw() const {
    std::size_t at = at_ + 2;
    if (at < source_.size() && (source_[at] == '-' || source_[at] == '+')) ++at;
    at = source_.find_first_not_of(kSpaces, at);
    if (at == std::string::npos || source_.compare(at, 3, "raw") != 0) return false;
    at = source_.find_first_not_of(kSpaces, at + 3);
    return at != std::string::npos &&
           (source_.compare(at, 2, "%}") == 0 || source_.compare(at, 3, "-%}") == 0);
  }

  Status read_raw() {
    advance(source_.find("%}", at_) - at_ - (source_[source_.find("%}", at_) - 1] == '-' ? 1 : 0));
    end_tag("%}", true);
    for (std::size_t tag = source_.find("{%", at_); tag != std::string::npos;
         tag = source_.find("{%", tag + 1)) {
      std::size_t name = tag + 2;
      if (name < source_.size() && (source_[name] == '-' || source_[name] == '+')) ++name;
      name = std::min(source_.find_first_not_of(kSpaces, name), source_.size());
      if (source_.compare(name, 6, "endraw") != 0) continue;
      add_data(tag);
      const std::size_t end = source_.find("%}", name);
      if (end == std::string::npos) break;
      advance(end - at_ - (source_[end - 1] == '-' ? 1 : 0));
      end_tag("%}", true);
      return {};
    }
    return wrong("'{% raw %}' has no '{% endraw %}'");
  }

  Status read_token() {
    const char c = source_[at_];
    if (begins_name(c)) {
      std::size_t n = 1;
      while (at_ + n < source_.size() && (begins_name(source_[at_ + n]) || is_digit(source_[at_ + n]))) ++n;
      add(TokenKind::name, source_.substr(at_, n));
      advance(n);
      return {};
    }
    if (is_digit(c)) return read_number();
    if (c == '\'' || c == '"') return read_text();
    return read_sign();
  }

  Status read_number() {
    std::size_t n = 0;
    bool real = false;
    const auto digits = [&] {
      while (at_ + n < source_.size() && (is_digit(source_[at_ + n]) || source_[at_ + n] == '_')) ++n;
    };
    const auto at = [&](std::size_t i) { return at_ + i < source_.size() ? source_[at_ + i] : '\0'; };
    digits();
    if (at(n) == '.' && is_digit(at(n + 1))) {
      real = true;
      ++n;
      digits();
    }
    if (at(n) == 'e' || at(n) == 'E') {
      const std::size_t sign = at(n + 1) == '+' || at(n + 1) == '-' ? 1 : 0;
      if (is_digit(at(n + 1 + sign))) {
        real = true;
        n += 1 + sign;
        digits();
      }
    }
    std::string text = source_.substr(at_, n);
    std::erase(text, '_');
    add(real ? TokenKind::real : TokenKind::integer, std::move(text));
    advance(n);
    return {};
  }

  Status read_text() {
    const char quote = source_[at_];
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return wrong("a text has no closing quote");
    STRATA_TRY_ASSIGN(std::string text, unescaped(std::string_view(source_).substr(at_ + 1, end - at_ - 1)));
    add(TokenKind::text, std::move(text));
    advance(end + 1 - at_);
    return {};
  }

  /// The text of a Python literal.
  Result<std::string> unescaped(std::string_view text) const {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\' || i + 1 == text.size()) {
        out += text[i];
        continue;
      }
      const char c = text[++i];
      constexpr std::string_view kNames = "nrtbfva'\"\\0", kMeanings("\n\r\t\b\f\v\a'\"\\\0", 11);
      if (const std::size_t known = kNames.find(c); known != std::string_view::npos) {
        out += kMeanings[known];
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        const std::string hex(text.substr(i + 1, digits));
        if (hex.size() != digits || hex.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos)
          return wrong(str("'\\", c, "' needs ", digits, " hexadecimal digits"));
        const unsigned long point = std::stoul(hex, nullptr, 16);
        if (point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF))
          return wrong(str("'\\", c, hex, "' is no character"));
        append_utf8(out, static_cast<char32_t>(point));
        i += digits;
      } else if (c != '\n') {  // an escaped line break joins two lines; another escape is kept
        (out += '\\') += c;
      }
    }
    return out;
  }

  Status read_sign() {
    constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", "<=", ">="};
    for (const std::string_view two : kTwo)
      if (follows(two)) {
        add(TokenKind::sign, std::string(two));
        advance(2);
        return {};
      }
    constexpr std::string_view kOne = "+-*/%~<>=.,:|()[]{}";
    const char c = source_[at_];
    if (kOne.find(c) == std::string_view::npos) return wrong(str("'", c, "' has no meaning in a tag"));
    if (c == '(' || c == '[' || c == '{') brackets_ += c;
    if (c == ')' || c == ']' || c == '}') {
      constexpr std::string_view kOpen = "([{", kClose = ")]}";
      if (brackets_.empty()) return wrong(str("'", c, "' closes nothing"));
      if (const char wanted = kClose[kOpen.find(brackets_.back())]; wanted != c)
        return wrong(str("'", c, "' stands where '", wanted, "' is missing"));
      brackets_.pop_back();
    }
    add(TokenKind::sign, std::string(1, c));
    advance(1);
    return {};
  }

  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;  // at the beginning of the template, and behind a tag that ended with a line
  std::string brackets_;       // open in the present tag
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> tokens_of(std::string_view source) { return Lexer(source).run(); }

}  // namespace strata::detail::jinja
