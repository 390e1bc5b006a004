#include "jinja/expression_parser.h"

#include <charconv>

#include <strata/runtime/str.h>

namespace strata::detail::jinja {
namespace {

constexpr int kMaxDepth = 100;
constexpr int kMaxChain = 100;  // operators after each other: each is a level of the tree

ExprPtr shared(Expr expr) { return std::make_unique<const Expr>(std::move(expr)); }

}  // namespace

class ExpressionParser::Level {
 public:
  explicit Level(ExpressionParser& parser) : parser_(parser) {
    if (++parser_.depth_ > kMaxDepth)
      parser_.tokens_.fail(str("expressions are nested deeper than ", kMaxDepth, " levels"));
  }
  ~Level() { --parser_.depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  ExpressionParser& parser_;
};

bool ExpressionParser::goes_on(int& length) {
  if (++length > kMaxChain) tokens_.fail(str("more than ", kMaxChain, " operators after each other"));
  return !tokens_.failed();
}

Expr ExpressionParser::begin(Expr::Kind kind) const {
  Expr expr;
  expr.kind = kind;
  expr.line = tokens_.peek().line;
  return expr;
}

ExprPtr ExpressionParser::condition() {
  const Level level(*this);
  ExprPtr value = disjunction();
  for (int n = 0; tokens_.sees_name("if") && goes_on(n);) {
    Expr expr = begin(Expr::Kind::condition);
    tokens_.take();
    expr.args.push_back(disjunction());
    expr.args.push_back(std::move(value));
    expr.args.push_back(tokens_.skip_name("else") ? condition() : nullptr);
    value = shared(std::move(expr));
  }
  return value;
}

ExprPtr ExpressionParser::tuple() {
  ExprPtr first = condition();
  if (!tokens_.sees_sign(",")) return first;
  Expr list = begin(Expr::Kind::list);
  list.args.push_back(std::move(first));
  while (tokens_.skip_sign(",")) {
    const TokenKind next = tokens_.peek().kind;
    if (next == TokenKind::end_block || next == TokenKind::end_print || tokens_.sees_sign(")")) break;
    list.args.push_back(condition());
  }
  return shared(std::move(list));
}

ExprPtr ExpressionParser::disjunction() {
  ExprPtr left = conjunction();
  for (int n = 0; tokens_.sees_name("or") && goes_on(n);) {
    Expr expr = begin(Expr::Kind::logical_or);
    tokens_.take();
    expr.args.push_back(std::move(left));
    expr.args.push_back(conjunction());
    left = shared(std::move(expr));
  }
  return left;
}

ExprPtr ExpressionParser::conjunction() {
  ExprPtr left = negation();
  for (int n = 0; tokens_.sees_name("and") && goes_on(n);) {
    Expr expr = begin(Expr::Kind::logical_and);
    tokens_.take();
    expr.args.push_back(std::move(left));
    expr.args.push_back(negation());
    left = shared(std::move(expr));
  }
  return left;
}

ExprPtr ExpressionParser::negation() {
  if (!tokens_.sees_name("not")) return comparison();
  const Level level(*this);
  Expr expr = begin(Expr::Kind::logical_not);
  tokens_.take();
  expr.args.push_back(negation());
  return shared(std::move(expr));
}

ExprPtr ExpressionParser::comparison() {
  Expr expr = begin(Expr::Kind::compare);
  expr.args.push_back(sum());
  for (;;) {
    std::string op;
    for (const std::string_view sign : {"==", "!=", "<=", ">=", "<", ">"})
      if (op.empty() && tokens_.skip_sign(sign)) op = sign;
    if (op.empty() && tokens_.skip_name("in")) op = "in";
    if (op.empty() && tokens_.sees_name("not") && tokens_.peek(1).is(TokenKind::name, "in")) {
      tokens_.take();
      tokens_.take();
      op = "not in";
    }
    if (op.empty()) break;
    expr.names.push_back(std::move(op));
    expr.args.push_back(sum());
  }
  return expr.names.empty() ? std::move(expr.args.front()) : shared(std::move(expr));
}

ExprPtr ExpressionParser::sum() {
  ExprPtr left = concatenation();
  for (int n = 0; (tokens_.sees_sign("+") || tokens_.sees_sign("-")) && goes_on(n);) {
    Expr expr = begin(Expr::Kind::arithmetic);
    expr.name = tokens_.take().text;
    expr.args.push_back(std::move(left));
    expr.args.push_back(concatenation());
    left = shared(std::move(expr));
  }
  return left;
}

ExprPtr ExpressionParser::concatenation() {
  Expr expr = begin(Expr::Kind::concat);
  expr.args.push_back(product());
  while (tokens_.skip_sign("~")) expr.args.push_back(product());
  return expr.args.size() == 1 ? std::move(expr.args.front()) : shared(std::move(expr));
}

ExprPtr ExpressionParser::product() {
  ExprPtr left = power();
  for (int n = 0; (tokens_.sees_sign("*") || tokens_.sees_sign("/") || tokens_.sees_sign("//") ||
                   tokens_.sees_sign("%")) &&
                  goes_on(n);) {
    Expr expr = begin(Expr::Kind::arithmetic);
    expr.name = tokens_.take().text;
    expr.args.push_back(std::move(left));
    expr.args.push_back(power());
    left = shared(std::move(expr));
  }
  return left;
}

ExprPtr ExpressionParser::power() {
  ExprPtr left = unary();
  for (int n = 0; tokens_.sees_sign("**") && goes_on(n);) {
    Expr expr = begin(Expr::Kind::arithmetic);
    expr.name = tokens_.take().text;
    expr.args.push_back(std::move(left));
    expr.args.push_back(unary());
    left = shared(std::move(expr));
  }
  return left;
}

ExprPtr ExpressionParser::unary(bool with_filters) {
  const Level level(*this);
  ExprPtr value;
  if (tokens_.sees_sign("-") || tokens_.sees_sign("+")) {
    Expr expr = begin(tokens_.sees_sign("-") ? Expr::Kind::negate : Expr::Kind::plus);
    tokens_.take();
    expr.args.push_back(unary(false));
    value = shared(std::move(expr));
  } else {
    value = primary();
  }
  value = postfix(std::move(value));
  return with_filters ? filters(std::move(value)) : std::move(value);
}

ExprPtr ExpressionParser::primary() {
  Expr expr = begin(Expr::Kind::literal);
  const Token token = tokens_.peek();
  switch (token.kind) {
    case TokenKind::text: {
      std::string text;
      while (tokens_.peek().kind == TokenKind::text) text += tokens_.take().text;
      expr.value = Value(text);
      return shared(std::move(expr));
    }
    case TokenKind::integer: {
      std::int64_t number = 0;
      if (std::from_chars(token.text.data(), token.text.data() + token.text.size(), number).ec != std::errc())
        tokens_.fail(str(token.text.substr(0, 40), " is too large"));
      expr.value = Value(number);
      tokens_.take();
      return shared(std::move(expr));
    }
    case TokenKind::real: {
      double number = 0;
      std::from_chars(token.text.data(), token.text.data() + token.text.size(), number);
      expr.value = Value(number);
      tokens_.take();
      return shared(std::move(expr));
    }
    case TokenKind::name:
      tokens_.take();
      if (token.text == "true" || token.text == "True" || token.text == "false" || token.text == "False") {
        expr.value = Value(token.text == "true" || token.text == "True");
      } else if (token.text == "none" || token.text == "None") {
        expr.value = Value(None{});
      } else {
        expr.kind = Expr::Kind::name;
        expr.name = token.text;
      }
      return shared(std::move(expr));
    default:
      if (tokens_.sees_sign("(")) return parenthesis();
      if (tokens_.sees_sign("[")) return list_literal();
      if (tokens_.sees_sign("{")) return dict_literal();
      tokens_.fail(str("a value is expected, not ", shown(token)));
      return shared(std::move(expr));
  }
}

ExprPtr ExpressionParser::parenthesis() {
  tokens_.expect_sign("(");
  if (tokens_.skip_sign(")")) return shared(begin(Expr::Kind::list));
  ExprPtr value = tuple();
  tokens_.expect_sign(")");
  return value;
}

ExprPtr ExpressionParser::list_literal() {
  Expr expr = begin(Expr::Kind::list);
  tokens_.expect_sign("[");
  while (!tokens_.failed() && !tokens_.sees_sign("]")) {
    expr.args.push_back(condition());
    if (!tokens_.skip_sign(",")) break;
  }
  tokens_.expect_sign("]");
  return shared(std::move(expr));
}

ExprPtr ExpressionParser::dict_literal() {
  Expr expr = begin(Expr::Kind::dict);
  tokens_.expect_sign("{");
  while (!tokens_.failed() && !tokens_.sees_sign("}")) {
    expr.args.push_back(condition());
    tokens_.expect_sign(":");
    expr.args.push_back(condition());
    if (!tokens_.skip_sign(",")) break;
  }
  tokens_.expect_sign("}");
  return shared(std::move(expr));
}

ExprPtr ExpressionParser::postfix(ExprPtr value) {
  for (int n = 0; goes_on(n);) {
    if (tokens_.sees_sign(".")) {
      Expr expr = begin(Expr::Kind::attribute);
      tokens_.take();
      if (tokens_.peek().kind == TokenKind::integer) {  // a.0 is a[0]
        Expr index = begin(Expr::Kind::literal);
        index.value = Value(std::int64_t{std::atoi(tokens_.take().text.c_str())});
        expr.kind = Expr::Kind::item;
        expr.args.push_back(std::move(value));
        expr.args.push_back(shared(std::move(index)));
      } else {
        expr.name = tokens_.expect_name("the name of an attribute");
        expr.args.push_back(std::move(value));
      }
      value = shared(std::move(expr));
    } else if (tokens_.sees_sign("[")) {
      value = subscript(std::move(value));
    } else if (tokens_.sees_sign("(")) {
      Expr expr = begin(Expr::Kind::call);
      expr.args.push_back(std::move(value));
      arguments(expr);
      value = shared(std::move(expr));
    } else {
      break;
    }
  }
  return value;
}

ExprPtr ExpressionParser::subscript(ExprPtr value) {
  Expr expr = begin(Expr::Kind::slice);
  tokens_.expect_sign("[");
  expr.args.push_back(std::move(value));
  bool is_slice = false;
  for (int part = 0; part < 3; ++part) {
    const bool absent = tokens_.sees_sign(":") || tokens_.sees_sign("]");
    expr.args.push_back(absent ? nullptr : condition());
    if (!tokens_.skip_sign(":")) break;
    is_slice = true;
  }
  tokens_.expect_sign("]");
  if (!is_slice) {
    expr.kind = Expr::Kind::item;
    if (expr.args[1] == nullptr) tokens_.fail("an index is expected, not ']'");
  }
  expr.args.resize(is_slice ? 4 : 2);
  return shared(std::move(expr));
}

ExprPtr ExpressionParser::filters(ExprPtr value, bool first_without_bar) {
  for (int n = 0; goes_on(n);) {
    if (std::exchange(first_without_bar, false) || tokens_.skip_sign("|")) {
      Expr expr = begin(Expr::Kind::filter);
      expr.name = tokens_.expect_name("the name of a filter");
      expr.args.push_back(std::move(value));
      if (tokens_.sees_sign("(")) arguments(expr);
      value = shared(std::move(expr));
    } else if (tokens_.skip_name("is")) {
      value = test(std::move(value));
    } else if (tokens_.sees_sign("(")) {
      value = postfix(std::move(value));
    } else {
      break;
    }
  }
  return value;
}

ExprPtr ExpressionParser::test(ExprPtr value) {
  const bool negated = tokens_.skip_name("not");
  Expr expr = begin(Expr::Kind::test);
  expr.name = tokens_.expect_name("the name of a test");
  expr.args.push_back(std::move(value));
  const Token& next = tokens_.peek();
  const bool ends = next.kind == TokenKind::name &&
                    (next.text == "else" || next.text == "or" || next.text == "and" || next.text == "is" ||
                     next.text == "if" || next.text == "in" || next.text == "not");
  if (tokens_.sees_sign("(")) {
    arguments(expr);
  } else if ((next.kind == TokenKind::name && !ends) || next.kind == TokenKind::text ||
             next.kind == TokenKind::integer || next.kind == TokenKind::real || tokens_.sees_sign("[") ||
             tokens_.sees_sign("{")) {
    expr.args.push_back(postfix(primary()));
  }
  if (!negated) return shared(std::move(expr));
  Expr inverse = begin(Expr::Kind::logical_not);
  inverse.args.push_back(shared(std::move(expr)));
  return shared(std::move(inverse));
}

void ExpressionParser::arguments(Expr& into) {
  tokens_.expect_sign("(");
  while (!tokens_.failed() && !tokens_.sees_sign(")")) {
    if (tokens_.peek().kind == TokenKind::name && tokens_.peek(1).is(TokenKind::sign, "=")) {
      std::string name = tokens_.take().text;
      tokens_.take();
      into.named.emplace_back(std::move(name), condition());
    } else {
      if (!into.named.empty()) tokens_.fail("an argument without a name follows one with a name");
      into.args.push_back(condition());
    }
    if (!tokens_.skip_sign(",")) break;
  }
  tokens_.expect_sign(")");
}

}  // namespace strata::detail::jinja
