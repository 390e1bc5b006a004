#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <strata/runtime/status.h>

#include "jinja/lexer.h"

namespace strata::detail::jinja {

/// How a token is shown in a message.
std::string shown(const Token& token);

/// Reads tokens one after the other and keeps the first error; after it, all tokens are `end`.
class TokenReader {
 public:
  explicit TokenReader(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& peek(std::size_t ahead = 0) const noexcept {
    const std::size_t at = next_ + ahead;
    return at < tokens_.size() ? tokens_[at] : tokens_.back();
  }
  Token take() {
    Token token = peek();
    if (next_ + 1 < tokens_.size()) ++next_;
    return token;
  }
  bool sees(TokenKind kind, std::string_view text) const noexcept { return peek().is(kind, text); }
  bool sees_sign(std::string_view text) const noexcept { return sees(TokenKind::sign, text); }
  bool sees_name(std::string_view text) const noexcept { return sees(TokenKind::name, text); }
  bool skip(TokenKind kind, std::string_view text) {
    if (!sees(kind, text)) return false;
    take();
    return true;
  }
  bool skip_sign(std::string_view text) { return skip(TokenKind::sign, text); }
  bool skip_name(std::string_view text) { return skip(TokenKind::name, text); }
  void expect_sign(std::string_view text);
  std::string expect_name(std::string_view what);
  void expect_end_of_block();
  void fail(std::string_view what, Code code = Code::invalid);
  bool failed() const noexcept { return !status_.is_ok(); }
  const Status& status() const noexcept { return status_; }

 private:
  std::vector<Token> tokens_;
  std::size_t next_ = 0;
  Status status_;
};

}  // namespace strata::detail::jinja
