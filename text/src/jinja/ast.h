#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "jinja/value.h"

namespace strata::detail::jinja {

struct Expr;
struct Node;
struct Scope;
using ExprPtr = std::unique_ptr<const Expr>;
using Body = std::vector<Node>;

struct Expr {
  enum class Kind : std::uint8_t {
    literal,
    name,
    list,
    dict,         ///< args: key, value, key, value ...
    attribute,    ///< args[0].name
    item,         ///< args[0][args[1]]
    slice,        ///< args[0][args[1] : args[2] : args[3]], each null if it is absent
    call,         ///< args[0](args[1...], named...)
    filter,       ///< args[0] | name(args[1...], named...)
    test,         ///< args[0] is name(args[1...])
    negate,       ///< - args[0]
    plus,         ///< + args[0]
    logical_not,  ///< not args[0]
    logical_and,
    logical_or,
    compare,  ///< args[0] names[0] args[1] names[1] args[2] ...
    arithmetic,
    concat,     ///< args[0] ~ args[1] ~ ...
    condition,  ///< args[1] if args[0] else args[2], which is null if it is absent
  };
  Kind kind = Kind::literal;
  int line = 1;
  std::string name;                ///< the name, attribute, filter or test; the operator of arithmetic
  std::vector<std::string> names;  ///< the operators of a comparison
  Value value;
  std::vector<ExprPtr> args;
  std::vector<std::pair<std::string, ExprPtr>> named;
};

struct Node {
  enum class Kind : std::uint8_t {
    data,
    print,
    branch,     ///< if exprs[0] body else orelse
    loop,       ///< for names in exprs[0] if exprs[1]: body else orelse
    set,        ///< names = exprs[0]; of a namespace: names[0].names[1] = exprs[0]
    set_block,  ///< names[0] = what the body writes, through the filters of exprs[0] on `written`
    macro,      ///< names[0]; parameters, with defaults
    call,       ///< exprs[0] is a call of a macro, whose caller() is the body
    filter,     ///< the output of the body passes through the filters of exprs[0] on `written`
    with,       ///< names = exprs, seen in the body
    scope,      ///< the body as it is: {% generation %}
    break_loop,
    continue_loop,
  };
  Kind kind = Kind::data;
  int line = 1;
  std::string text;  ///< the text of data
  bool of_namespace = false;
  std::vector<std::string> names;
  std::vector<ExprPtr> exprs;
  Body body, orelse;
};

/// The name under which the filters of a block find what its body wrote.
inline constexpr const char* kWritten = " written";

/// A macro, and the names at the place where it stands, as long as there are such.
struct Macro {
  const Node* node = nullptr;
  std::weak_ptr<Scope> scope;
};

}  // namespace strata::detail::jinja
