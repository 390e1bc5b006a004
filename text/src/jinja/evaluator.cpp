#include "jinja/evaluator.h"

#include <algorithm>
#include <ctime>

#include <strata/runtime/str.h>

namespace strata::detail::jinja {
namespace {

constexpr int kMaxCalls = 200;                          // calls and expressions inside each other
constexpr std::size_t kMaxWork = std::size_t{1} << 28;  // one unit is about the time of a byte
constexpr std::size_t kStepWork = 256;                  // the work of an expression or a value

Value loop_value(const std::vector<Value>& values, std::size_t i) {
  const std::size_t n = values.size();
  Dict loop = {{"index", Value::size(i + 1)},    {"index0", Value::size(i)},
               {"revindex", Value::size(n - i)}, {"revindex0", Value::size(n - i - 1)},
               {"first", Value(i == 0)},         {"last", Value(i + 1 == n)},
               {"length", Value::size(n)},       {"depth", Value::size(1)},
               {"depth0", Value::size(0)}};
  if (i > 0) loop.emplace_back("previtem", values[i - 1]);
  if (i + 1 < n) loop.emplace_back("nextitem", values[i + 1]);
  return Value(std::move(loop));
}

}  // namespace

const Value* Scope::find(std::string_view name) const noexcept {
  for (const Scope* scope = this; scope != nullptr; scope = scope->outer.get())
    for (const auto& [known, value] : scope->names)
      if (known == name) return &value;
  return nullptr;
}
void Scope::set(const std::string& name, Value value) {
  for (auto& [known, held] : names)
    if (known == name) {
      held = std::move(value);
      return;
    }
  names.emplace_back(name, std::move(value));
}

const Value* Arguments::get(std::size_t place, std::string_view name) const noexcept {
  if (place < values.size()) return &values[place];
  for (const auto& [known, value] : named)
    if (known == name) return &value;
  return nullptr;
}

Evaluator::Evaluator(const Body& body, const Dict& variables, std::tm now) : body_(body), now_(now) {
  for (const auto& [name, value] : variables) top_->set(name, value);
}

Result<Text> Evaluator::run() {
  Text out;
  write(body_, top_, out);
  if (failed()) return status_;
  return out;
}

Value Evaluator::fail(std::string_view what, Code code) {
  if (!failed()) status_ = Status::error(code, str("line ", line_, ": ", what));
  return {};
}

bool Evaluator::spend(std::size_t work) {
  work_ += work;
  if (work_ > kMaxWork) fail(str("the template takes more than ", kMaxWork, " operations"));
  return !failed();
}

Evaluator::Flow Evaluator::write(const Body& body, const ScopePtr& scope, Text& out) {
  if (++depth_ > kMaxCalls) fail(str("macros and blocks are nested deeper than ", kMaxCalls, " levels"));
  Flow flow = Flow::goes_on;
  for (const Node& node : body) {
    if (flow != Flow::goes_on || failed()) break;
    flow = write(node, scope, out);
  }
  --depth_;
  return failed() ? Flow::breaks : flow;
}

Evaluator::Flow Evaluator::write(const Node& node, const ScopePtr& scope, Text& out) {
  line_ = node.line;
  if (!spend(kStepWork)) return Flow::breaks;
  switch (node.kind) {
    case Node::Kind::data:
      spend(node.text.size());
      out.append(Text(node.text));
      break;
    case Node::Kind::print: {
      const Value value = evaluate(*node.exprs[0], scope);
      if (spend(value.present_weight())) out.append(printed(value));
      break;
    }
    case Node::Kind::branch:
      return write(evaluate(*node.exprs[0], scope).truth() ? node.body : node.orelse, scope, out);
    case Node::Kind::loop:
      return write_loop(node, scope, out);
    case Node::Kind::set:
      assign(node, scope);
      break;
    case Node::Kind::set_block:
      scope->set(node.names[0], filtered(node, scope));
      break;
    case Node::Kind::macro: {
      Value value;
      value.held = std::make_shared<const Macro>(Macro{&node, scope});
      scope->set(node.names[0], std::move(value));
      break;
    }
    case Node::Kind::call:
      write_call(node, scope, out);
      break;
    case Node::Kind::filter:
      out.append(printed(filtered(node, scope)));
      break;
    case Node::Kind::with: {
      const auto inner = std::make_shared<Scope>(scope);
      for (std::size_t i = 0; i < node.names.size(); ++i)
        inner->set(node.names[i], evaluate(*node.exprs[i], scope));
      return write(node.body, inner, out);
    }
    case Node::Kind::scope:
      return write(node.body, scope, out);
    case Node::Kind::break_loop:
      return Flow::breaks;
    case Node::Kind::continue_loop:
      return Flow::continues;
  }
  return Flow::goes_on;
}

Evaluator::Flow Evaluator::write_loop(const Node& node, const ScopePtr& scope, Text& out) {
  std::vector<Value> values = values_of(evaluate(*node.exprs[0], scope));
  const auto bind = [&](const ScopePtr& inner, const Value& value) {
    if (node.names.size() == 1) return inner->set(node.names[0], value);
    const std::vector<Value> parts = values_of(value);
    if (parts.size() != node.names.size()) {
      fail(str("a loop over ", node.names.size(), " names found ", parts.size(), " values"));
      return;
    }
    for (std::size_t i = 0; i < parts.size(); ++i) inner->set(node.names[i], parts[i]);
  };
  if (node.exprs[1] != nullptr)
    std::erase_if(values, [&](const Value& value) {
      const auto inner = std::make_shared<Scope>(scope);
      bind(inner, value);
      return !evaluate(*node.exprs[1], inner).truth();
    });
  if (values.empty()) return write(node.orelse, scope, out);
  for (std::size_t i = 0; i < values.size() && !failed(); ++i) {
    const auto inner = std::make_shared<Scope>(scope);
    bind(inner, values[i]);
    inner->set("loop", loop_value(values, i));
    if (write(node.body, inner, out) == Flow::breaks) break;
  }
  return Flow::goes_on;
}

void Evaluator::assign(const Node& node, const ScopePtr& scope) {
  const Value value = evaluate(*node.exprs[0], scope);
  if (node.of_namespace) {
    const Value* found = scope->find(node.names[0]);
    Dict* space = found == nullptr ? nullptr : found->changeable();
    if (space == nullptr) {
      fail(
          str("'", node.names[0], "' is no namespace, so its attribute '", node.names[1], "' cannot be set"));
      return;
    }
    if (value.nesting >= kMaxNesting) {
      fail(str("'", node.names[0], ".", node.names[1], "' would be nested deeper than ", kMaxNesting,
               " levels, as deep as a namespace"));
      return;
    }
    for (auto& [name, held] : *space)
      if (name == node.names[1]) {
        held = value;
        return;
      }
    space->emplace_back(node.names[1], value);
    return;
  }
  if (node.names.size() == 1) return scope->set(node.names[0], value);
  const std::vector<Value> parts = values_of(value);
  if (parts.size() != node.names.size()) {
    fail(str("'set' of ", node.names.size(), " names found ", parts.size(), " values"));
    return;
  }
  for (std::size_t i = 0; i < parts.size(); ++i) scope->set(node.names[i], parts[i]);
}

Value Evaluator::filtered(const Node& node, const ScopePtr& scope) {
  Text text;
  const auto inner = std::make_shared<Scope>(scope);
  write(node.body, inner, text);
  inner->set(kWritten, Value(std::move(text)));
  return evaluate(*node.exprs[0], inner);
}

void Evaluator::write_call(const Node& node, const ScopePtr& scope, Text& out) {
  const Expr& call = *node.exprs[0];
  const Value function = evaluate(*call.args[0], scope);
  if (function.macro() == nullptr) {
    fail("'call' is of something that is no macro");
    return;
  }
  Value caller;
  caller.held = std::make_shared<const Macro>(Macro{&node.body[0], scope});
  const Arguments arguments = arguments_of(call, scope);
  if (!failed()) out.append(printed(call_macro(*function.macro(), arguments, &caller)));
}

// A macro sees the names of the block that it stands in, as they are when it is called.
Value Evaluator::call_macro(const Macro& macro, const Arguments& arguments, const Value* caller) {
  const Node& node = *macro.node;
  if (++depth_ > kMaxCalls) fail(str("macros and expressions are nested deeper than ", kMaxCalls, " levels"));
  const ScopePtr around = macro.scope.lock();
  const auto inner = std::make_shared<Scope>(around != nullptr ? around : top_);
  const std::size_t n = node.names.size() - 1;
  if (arguments.values.size() > n)
    fail(str("macro '", node.names[0], "' takes ", n, " arguments, not ", arguments.values.size()));
  for (std::size_t i = 0; i < n && !failed(); ++i) {
    const std::string& name = node.names[i + 1];
    if (const Value* given = arguments.get(i, name))
      inner->set(name, *given);
    else
      inner->set(name, node.exprs[i] != nullptr ? evaluate(*node.exprs[i], inner) : Value::undefined(name));
  }
  for (const auto& [name, value] : arguments.named)
    if (std::find(node.names.begin() + 1, node.names.end(), name) == node.names.end())
      fail(str("macro '", node.names[0], "' has no parameter '", name, "'"));
  if (caller != nullptr) inner->set("caller", *caller);
  Text text;
  if (!failed()) write(node.body, inner, text);
  --depth_;
  return Value(std::move(text));
}

Value Evaluator::call(const Value& function, const Arguments& arguments) {
  if (failed()) return {};
  if (const Macro* macro = function.macro()) return call_macro(*macro, arguments, nullptr);
  if (const Builtin* builtin = function.builtin()) return call_builtin(*this, *builtin, arguments);
  if (const Undefined* unknown = std::get_if<Undefined>(&function.held))
    return fail(str("'", unknown->name, "' is undefined"));
  return fail(str(function.kind(), " cannot be called"));
}

std::vector<Value> Evaluator::values_of(const Value& value) {
  std::vector<Value> out;
  if (const List* list = value.list()) {
    out = *list;
  } else if (const Dict* dict = value.dict()) {
    for (const auto& [key, held] : *dict) out.emplace_back(key);
  } else if (const Text* text = value.text()) {
    const std::vector<std::size_t> at = character_offsets(text->bytes());
    if (!spend(at.size() * kStepWork)) return out;
    for (std::size_t i = 0; i + 1 < at.size(); ++i) out.emplace_back(text->slice(at[i], at[i + 1]));
  } else if (!value.is_undefined()) {
    fail(str(value.kind(), " has no values to go through"));
  }
  spend(out.size() * kStepWork);
  return out;
}

Value Evaluator::attribute(const Value& value, const std::string& name) {
  if (failed()) return {};
  if (const Undefined* unknown = std::get_if<Undefined>(&value.held))
    return fail(str("'", unknown->name, "' is undefined, and so is its '", name, "'"));
  if (has_method(value, name)) {
    Value method;
    method.held = std::make_shared<const Builtin>(Builtin{name, std::make_shared<const Value>(value)});
    return method;
  }
  const Value* found = value.find(name);
  return found != nullptr ? *found : Value::undefined(name);
}

Value Evaluator::item(const Value& value, const Value& key) {
  if (failed()) return {};
  if (const Undefined* unknown = std::get_if<Undefined>(&value.held))
    return fail(str("'", unknown->name, "' is undefined, and so is its item"));
  if (const Text* name = key.text()) {
    if (const Value* found = value.find(name->bytes())) return *found;
    return attribute(value, name->bytes());
  }
  if (!key.is_integer()) return Value::undefined("item");
  const auto at = [&](std::size_t n) {
    const std::int64_t i = key.integer(), size = static_cast<std::int64_t>(n);
    return i < 0 ? i + size : i;
  };
  if (const List* list = value.list()) {
    const std::int64_t i = at(list->size());
    return i >= 0 && i < std::ssize(*list) ? (*list)[static_cast<std::size_t>(i)] : Value::undefined("item");
  }
  if (const Text* text = value.text()) {
    const std::vector<std::size_t> offsets = character_offsets(text->bytes());
    if (!spend(offsets.size())) return {};
    const std::int64_t i = at(offsets.size() - 1);
    if (i < 0 || i + 1 >= std::ssize(offsets)) return Value::undefined("item");
    return Value(text->slice(offsets[static_cast<std::size_t>(i)], offsets[static_cast<std::size_t>(i) + 1]));
  }
  return Value::undefined("item");
}

Value Evaluator::evaluate(const Expr& expr, const ScopePtr& scope) {
  if (failed()) return {};
  line_ = expr.line;
  if (++depth_ > kMaxCalls) fail(str("macros and expressions are nested deeper than ", kMaxCalls, " levels"));
  Value value = spend(kStepWork) ? evaluated(expr, scope) : Value();
  --depth_;
  if (value.weight > kMaxWeight) return fail(str("a value of more than ", kMaxWeight, " bytes and values"));
  if (value.nesting > kMaxNesting) return fail(str("lists are nested deeper than ", kMaxNesting, " levels"));
  return failed() ? Value() : value;
}

Value Evaluator::evaluated(const Expr& expr, const ScopePtr& scope) {
  const auto arg = [&](std::size_t i) { return evaluate(*expr.args[i], scope); };
  switch (expr.kind) {
    case Expr::Kind::literal:
      return expr.value;
    case Expr::Kind::name: {
      if (const Value* found = scope->find(expr.name)) return *found;
      if (!is_global_function(expr.name)) return Value::undefined(expr.name);
      Value function;
      function.held = std::make_shared<const Builtin>(Builtin{expr.name, nullptr});
      return function;
    }
    case Expr::Kind::list: {
      List list;
      for (std::size_t i = 0; i < expr.args.size(); ++i) list.push_back(arg(i));
      return Value(std::move(list));
    }
    case Expr::Kind::dict:
      return dict_of(expr, scope);
    case Expr::Kind::attribute:
      return attribute(arg(0), expr.name);
    case Expr::Kind::item: {
      const Value value = arg(0);
      return item(value, arg(1));
    }
    case Expr::Kind::slice:
      return slice(expr, scope);
    case Expr::Kind::call: {
      const Value function = arg(0);
      return call(function, arguments_of(expr, scope));
    }
    case Expr::Kind::filter: {
      const Value value = arg(0);
      return apply_filter(expr.name, value, arguments_of(expr, scope));
    }
    case Expr::Kind::test: {
      const Value value = arg(0);
      const Arguments arguments = arguments_of(expr, scope);
      return failed() ? Value() : Value(passes_test(expr.name, value, arguments));
    }
    case Expr::Kind::negate:
      return arithmetic("-", Value(std::int64_t{0}), arg(0));
    case Expr::Kind::plus:
      return arithmetic("+", Value(std::int64_t{0}), arg(0));
    case Expr::Kind::logical_not:
      return Value(!arg(0).truth());
    case Expr::Kind::logical_and: {
      Value left = arg(0);
      return left.truth() ? arg(1) : left;
    }
    case Expr::Kind::logical_or: {
      Value left = arg(0);
      return left.truth() ? left : arg(1);
    }
    case Expr::Kind::compare:
      return comparison(expr, scope);
    case Expr::Kind::arithmetic: {
      const Value left = arg(0);
      return arithmetic(expr.name, left, arg(1));
    }
    case Expr::Kind::concat: {
      Text text;
      for (std::size_t i = 0; i < expr.args.size(); ++i) {
        const Value value = arg(i);
        if (spend(value.present_weight())) text.append(printed(value));
      }
      return Value(std::move(text));
    }
    case Expr::Kind::condition:
      if (arg(0).truth()) return arg(1);
      return expr.args[2] == nullptr ? Value::undefined("the other value of a condition") : arg(2);
  }
  return {};
}

}  // namespace strata::detail::jinja
