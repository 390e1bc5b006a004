#include "jinja/parser.h"

#include <initializer_list>

#include <strata/runtime/str.h>

#include "jinja/expression_parser.h"

namespace strata::detail::jinja {
namespace {

constexpr int kMaxBlocks = 100;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)), expressions_(tokens_) {}

  Result<Body> run() {
    Body all = body({});
    if (!tokens_.failed() && tokens_.peek().kind != TokenKind::end)
      tokens_.fail(str("'", tokens_.peek(1).text, "' ends nothing"));
    if (tokens_.failed()) return tokens_.status();
    return all;
  }

 private:
  using Names = std::initializer_list<std::string_view>;

  Node begin(Node::Kind kind) const {
    Node node;
    node.kind = kind;
    node.line = tokens_.peek().line;
    return node;
  }

  /// Whether a block tag with one of the names is next.
  bool sees_block(Names names) const {
    if (tokens_.peek().kind != TokenKind::begin_block) return false;
    for (const std::string_view name : names)
      if (tokens_.peek(1).is(TokenKind::name, name)) return true;
    return false;
  }

  /// Reads up to a block tag with one of the names, which is left unread.
  Body body(Names ends) {
    Body out;
    if (++depth_ > kMaxBlocks) tokens_.fail(str("blocks are nested deeper than ", kMaxBlocks, " levels"));
    while (!tokens_.failed() && tokens_.peek().kind != TokenKind::end && !sees_block(ends)) {
      if (tokens_.peek().kind == TokenKind::data) {
        Node node = begin(Node::Kind::data);
        node.text = tokens_.take().text;
        out.push_back(std::move(node));
      } else if (tokens_.peek().kind == TokenKind::begin_print) {
        Node node = begin(Node::Kind::print);
        tokens_.take();
        node.exprs.push_back(expressions_.tuple());
        if (tokens_.peek().kind == TokenKind::end_print)
          tokens_.take();
        else
          tokens_.fail("'}}' is expected");
        out.push_back(std::move(node));
      } else {
        out.push_back(block());
      }
    }
    --depth_;
    return out;
  }

  /// Reads a body and the tag that ends it.
  Body body_until(std::string_view end) {
    Body out = body({end});
    end_block(end);
    return out;
  }
  void end_block(std::string_view name) {
    if (!sees_block({name})) return tokens_.fail(str("'{% ", name, " %}' is missing"));
    tokens_.take();
    tokens_.take();
    if (name == "endmacro" || name == "endcall") tokens_.skip(TokenKind::name, tokens_.peek().text);
    tokens_.expect_end_of_block();
  }

  Node block() {
    tokens_.take();  // {%
    const std::string name = tokens_.expect_name("the name of a block");
    if (name == "if") return branch();
    if (name == "for") return loop();
    if (name == "set") return set();
    if (name == "macro") return macro();
    if (name == "call") return call();
    if (name == "filter") return filter();
    if (name == "with") return with();
    if (name == "generation") return scope();
    if (name == "break" || name == "continue") {
      if (loops_ == 0) tokens_.fail(str("'", name, "' is in no loop"));
      Node node = begin(name == "break" ? Node::Kind::break_loop : Node::Kind::continue_loop);
      tokens_.expect_end_of_block();
      return node;
    }
    for (const std::string_view other : {"extends", "block", "include", "import", "from", "do", "autoescape"})
      if (name == other) tokens_.fail(str("'{% ", name, " %}' is not supported"), Code::unsupported);
    tokens_.fail(str("'{% ", name.substr(0, 40), " %}' is no block that begins here"));
    return begin(Node::Kind::data);
  }

  Node branch() {
    Node node = begin(Node::Kind::branch);
    node.exprs.push_back(expressions_.tuple());
    tokens_.expect_end_of_block();
    node.body = body({"elif", "else", "endif"});
    if (sees_block({"elif"})) {
      if (++depth_ > kMaxBlocks) tokens_.fail(str("more than ", kMaxBlocks, " branches"));
      tokens_.take();
      tokens_.take();
      node.orelse.push_back(branch());
      --depth_;
      return node;  // the inner branch has read the end
    }
    if (sees_block({"else"})) {
      tokens_.take();
      tokens_.take();
      tokens_.expect_end_of_block();
      node.orelse = body({"endif"});
    }
    end_block("endif");
    return node;
  }

  Node loop() {
    Node node = begin(Node::Kind::loop);
    const bool enclosed = tokens_.skip_sign("(");
    do node.names.push_back(tokens_.expect_name("the name of a loop variable"));
    while (tokens_.skip_sign(","));
    if (enclosed) tokens_.expect_sign(")");
    if (!tokens_.skip_name("in")) tokens_.fail("'in' is expected");
    node.exprs.push_back(expressions_.disjunction());
    if (tokens_.sees_sign(","))
      tokens_.fail("a loop over values without brackets is not supported", Code::unsupported);
    node.exprs.push_back(tokens_.skip_name("if") ? expressions_.condition() : nullptr);
    if (tokens_.sees_name("recursive")) tokens_.fail("recursive loops are not supported", Code::unsupported);
    tokens_.expect_end_of_block();
    ++loops_;
    node.body = body({"else", "endfor"});
    --loops_;
    if (sees_block({"else"})) {
      tokens_.take();
      tokens_.take();
      tokens_.expect_end_of_block();
      node.orelse = body({"endfor"});
    }
    end_block("endfor");
    return node;
  }

  Node set() {
    Node node = begin(Node::Kind::set);
    do node.names.push_back(tokens_.expect_name("the name of a variable"));
    while (tokens_.skip_sign(","));
    if (node.names.size() == 1 && tokens_.skip_sign(".")) {
      node.of_namespace = true;
      node.names.push_back(tokens_.expect_name("the name of an attribute"));
    }
    if (tokens_.skip_sign("=")) {
      node.exprs.push_back(expressions_.tuple());
      tokens_.expect_end_of_block();
      return node;
    }
    if (node.of_namespace || node.names.size() > 1) tokens_.fail("'=' is expected");
    node.kind = Node::Kind::set_block;
    node.exprs.push_back(expressions_.filters(written()));
    tokens_.expect_end_of_block();
    node.body = body_until("endset");
    return node;
  }

  ExprPtr written() const {
    Expr expr;
    expr.kind = Expr::Kind::name;
    expr.line = tokens_.peek().line;
    expr.name = kWritten;
    return std::make_unique<const Expr>(std::move(expr));
  }

  /// Parameters: names[1...], each with a default in `exprs` at the same place, or null.
  void parameters(Node& node) {
    tokens_.expect_sign("(");
    while (!tokens_.failed() && !tokens_.sees_sign(")")) {
      node.names.push_back(tokens_.expect_name("the name of a parameter"));
      node.exprs.push_back(tokens_.skip_sign("=") ? expressions_.condition() : nullptr);
      if (!tokens_.skip_sign(",")) break;
    }
    tokens_.expect_sign(")");
  }

  Node macro() {
    Node node = begin(Node::Kind::macro);
    node.names.push_back(tokens_.expect_name("the name of a macro"));
    parameters(node);
    tokens_.expect_end_of_block();
    const int outer = std::exchange(loops_, 0);
    node.body = body_until("endmacro");
    loops_ = outer;
    return node;
  }

  Node call() {
    Node node = begin(Node::Kind::call);
    if (tokens_.sees_sign("(")) tokens_.fail("parameters of 'call' are not supported", Code::unsupported);
    node.exprs.push_back(expressions_.condition());
    if (!tokens_.failed() && node.exprs[0]->kind != Expr::Kind::call) tokens_.fail("'call' needs a call");
    tokens_.expect_end_of_block();
    Node caller = begin(Node::Kind::macro);
    caller.names.emplace_back("caller");
    const int outer = std::exchange(loops_, 0);
    caller.body = body_until("endcall");
    loops_ = outer;
    node.body.push_back(std::move(caller));
    return node;
  }

  Node filter() {
    Node node = begin(Node::Kind::filter);
    node.exprs.push_back(expressions_.filters(written(), true));
    tokens_.expect_end_of_block();
    node.body = body_until("endfilter");
    return node;
  }

  Node with() {
    Node node = begin(Node::Kind::with);
    while (!tokens_.failed() && tokens_.peek().kind == TokenKind::name) {
      node.names.push_back(tokens_.take().text);
      tokens_.expect_sign("=");
      node.exprs.push_back(expressions_.condition());
      if (!tokens_.skip_sign(",")) break;
    }
    tokens_.expect_end_of_block();
    node.body = body_until("endwith");
    return node;
  }

  Node scope() {
    Node node = begin(Node::Kind::scope);
    tokens_.expect_end_of_block();
    node.body = body_until("endgeneration");
    return node;
  }

  TokenReader tokens_;
  ExpressionParser expressions_;
  int depth_ = 0;
  int loops_ = 0;  // around the present place
};

}  // namespace

Result<Body> parse(std::string_view source) {
  STRATA_TRY_ASSIGN(std::vector<Token> tokens, tokens_of(source));
  return Parser(std::move(tokens)).run();
}

}  // namespace strata::detail::jinja
