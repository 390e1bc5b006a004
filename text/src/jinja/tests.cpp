// The tests of Jinja 3: `value is NAME`.
#include <algorithm>

#include <strata/runtime/str.h>

#include "jinja/evaluator.h"

namespace strata::detail::jinja {
namespace {

using Test = bool (*)(const Value&);

struct TestRow {
  std::string_view name;
  Test passes;
};
constexpr TestRow kTests[] = {
    {"defined", [](const Value& v) { return !v.is_undefined(); }},
    {"undefined", [](const Value& v) { return v.is_undefined(); }},
    {"none", [](const Value& v) { return v.is_none(); }},
    {"string", [](const Value& v) { return v.text() != nullptr; }},
    {"mapping", [](const Value& v) { return v.dict() != nullptr && v.changeable() == nullptr; }},
    {"sequence",
     [](const Value& v) { return v.list() != nullptr || v.text() != nullptr || v.dict() != nullptr; }},
    {"iterable",
     [](const Value& v) {
       return v.list() != nullptr || v.text() != nullptr || v.dict() != nullptr || v.is_undefined();
     }},
    {"boolean", [](const Value& v) { return v.is_bool(); }},
    {"true", [](const Value& v) { return v.is_bool() && v.integer() != 0; }},
    {"false", [](const Value& v) { return v.is_bool() && v.integer() == 0; }},
    {"number", [](const Value& v) { return v.is_number() || v.is_large(); }},
    {"integer", [](const Value& v) { return (v.is_integer() && !v.is_bool()) || v.is_large(); }},
    {"float", [](const Value& v) { return v.is_number() && !v.is_integer(); }},
    {"callable", [](const Value& v) { return v.builtin() != nullptr || v.macro() != nullptr; }},
    {"odd", [](const Value& v) { return v.is_integer() && v.integer() % 2 != 0; }},
    {"even", [](const Value& v) { return v.is_integer() && v.integer() % 2 == 0; }},
    {"lower",
     [](const Value& v) { return v.text() != nullptr && lower(*v.text()).bytes() == v.text()->bytes(); }},
    {"upper",
     [](const Value& v) { return v.text() != nullptr && upper(*v.text()).bytes() == v.text()->bytes(); }},
};

/// The operator that a test of two values stands for; empty if it is none.
std::string operator_of(std::string_view name) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"equalto", "=="},    {"eq", "=="},      {"==", "=="}, {"ne", "!="}, {"!=", "!="}, {"lt", "<"},
      {"<", "<"},           {"lessthan", "<"}, {"le", "<="}, {"<=", "<="}, {"gt", ">"},  {">", ">"},
      {"greaterthan", ">"}, {"ge", ">="},      {">=", ">="}, {"in", "in"}};
  for (const auto& [known, op] : kNames)
    if (known == name) return std::string(op);
  return {};
}

}  // namespace

bool Evaluator::passes_test(std::string_view name, const Value& value, const Arguments& arguments) {
  if (failed()) return false;
  for (const TestRow& row : kTests)
    if (row.name == name) return row.passes(value);
  const Value* other = arguments.values.empty() ? nullptr : arguments.values.data();
  if (name == "divisibleby" && other != nullptr && other->is_integer() && other->integer() != 0)
    return value.is_integer() && (other->integer() == -1 || value.integer() % other->integer() == 0);
  if (name == "sameas" && other != nullptr)
    return value.held.index() == other->held.index() && compares("==", value, *other);
  if (const std::string op = operator_of(name); !op.empty()) {
    if (other != nullptr) return compares(op, value, *other);
    fail(str("the test '", name, "' needs a value to compare with"));
    return false;
  }
  fail(str("the test '", name.substr(0, 40), "' is not supported"), Code::unsupported);
  return false;
}

}  // namespace strata::detail::jinja
