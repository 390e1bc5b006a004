#include "jinja/token_reader.h"

#include <strata/runtime/str.h>

namespace strata::detail::jinja {

std::string shown(const Token& token) {
  switch (token.kind) {
    case TokenKind::end:
      return "the end of the template";
    case TokenKind::end_block:
      return "'%}'";
    case TokenKind::end_print:
      return "'}}'";
    default:
      return str("'", token.text.substr(0, 40), "'");
  }
}

void TokenReader::fail(std::string_view what, Code code) {
  if (failed()) return;
  status_ = Status::error(code, str("line ", peek().line, ": ", what));
  const int line = peek().line;
  tokens_.assign(1, {TokenKind::end, "", line});
  next_ = 0;
}
void TokenReader::expect_sign(std::string_view text) {
  if (!skip_sign(text)) fail(str("'", text, "' is expected, not ", shown(peek())));
}
std::string TokenReader::expect_name(std::string_view what) {
  if (peek().kind != TokenKind::name) {
    fail(str(what, " is expected, not ", shown(peek())));
    return {};
  }
  return take().text;
}
void TokenReader::expect_end_of_block() {
  if (peek().kind != TokenKind::end_block) return fail(str("'%}' is expected, not ", shown(peek())));
  take();
}

}  // namespace strata::detail::jinja
