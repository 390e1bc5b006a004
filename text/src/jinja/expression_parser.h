#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <strata/runtime/status.h>

#include "jinja/ast.h"
#include "jinja/token_reader.h"

namespace strata::detail::jinja {

/// An expression with the precedence of Jinja 3. Never null; a dead value after an error of `tokens`.
class ExpressionParser {
 public:
  explicit ExpressionParser(TokenReader& tokens) : tokens_(tokens) {}
  ExprPtr condition();
  /// `a, b` is a list.
  ExprPtr tuple();
  ExprPtr disjunction();  ///< without "x if y", as the iterable of a loop
  /// `value` through one filter after the other.
  ExprPtr filters(ExprPtr value, bool first_without_bar = false);

 private:
  ExprPtr conjunction();
  ExprPtr negation();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr concatenation();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filters = true);
  ExprPtr primary();
  ExprPtr parenthesis();
  ExprPtr list_literal();
  ExprPtr dict_literal();
  ExprPtr postfix(ExprPtr value);
  ExprPtr subscript(ExprPtr value);
  ExprPtr test(ExprPtr value);
  void arguments(Expr& into);
  Expr begin(Expr::Kind kind) const;
  /// Counts an operator of a chain; false when there are too many, which is an error, or after any other.
  bool goes_on(int& length);
  /// Counts how deep expressions are inside each other, since each level is a level of the stack.
  class Level;

  TokenReader& tokens_;
  int depth_ = 0;
};

}  // namespace strata::detail::jinja
