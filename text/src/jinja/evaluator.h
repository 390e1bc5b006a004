#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <strata/runtime/status.h>

#include "jinja/ast.h"

namespace strata::detail::jinja {

/// The names that are visible at a place, and those of the blocks around it.
struct Scope {
  explicit Scope(std::shared_ptr<Scope> around = nullptr) : outer(std::move(around)) {}
  std::vector<std::pair<std::string, Value>> names;
  const std::shared_ptr<Scope> outer;

  const Value* find(std::string_view name) const noexcept;
  void set(const std::string& name, Value value);
};

using ScopePtr = std::shared_ptr<Scope>;

/// The arguments of a call of a function or filter.
struct Arguments {
  std::vector<Value> values;
  Dict named;

  /// The argument at `place`, or the one with the name; null if neither was given.
  const Value* get(std::size_t place, std::string_view name) const noexcept;
};

/// Writes a template with variables. The first error is kept; after it, everything evaluates to an undefined
/// value at once. Work is bounded: a template is a stranger's program.
class Evaluator {
 public:
  /// `now`: what strftime_now() formats.
  Evaluator(const Body& body, const Dict& variables, std::tm now);
  Result<Text> run();

  // For the filters, tests and methods:
  Value fail(std::string_view what, Code code = Code::invalid);
  bool failed() const noexcept { return !status_.is_ok(); }
  /// Counts work against the limit; false when it is exceeded.
  bool spend(std::size_t work);
  Value call(const Value& function, const Arguments& arguments);
  Value apply_filter(std::string_view name, const Value& value, const Arguments& arguments);
  bool passes_test(std::string_view name, const Value& value, const Arguments& arguments);
  Value attribute(const Value& value, const std::string& name);
  Value item(const Value& value, const Value& key);
  bool compares(const std::string& op, const Value& a, const Value& b);
  /// The values of a list, the characters of a text, the keys of a mapping.
  std::vector<Value> values_of(const Value& value);
  const std::tm& now() const noexcept { return now_; }

 private:
  enum class Flow : std::uint8_t { goes_on, breaks, continues };
  Flow write(const Body& body, const ScopePtr& scope, Text& out);
  Flow write(const Node& node, const ScopePtr& scope, Text& out);
  Flow write_loop(const Node& node, const ScopePtr& scope, Text& out);
  void assign(const Node& node, const ScopePtr& scope);
  Value filtered(const Node& node, const ScopePtr& scope);
  void write_call(const Node& node, const ScopePtr& scope, Text& out);
  Value call_macro(const Macro& macro, const Arguments& arguments, const Value* caller);

  Value evaluate(const Expr& expr, const ScopePtr& scope);
  Value evaluated(const Expr& expr, const ScopePtr& scope);
  Arguments arguments_of(const Expr& expr, const ScopePtr& scope);
  Value comparison(const Expr& expr, const ScopePtr& scope);

  bool contains(const Value& all, const Value& one);
  Value arithmetic(const std::string& op, const Value& a, const Value& b);
  Value slice(const Expr& expr, const ScopePtr& scope);
  Value dict_of(const Expr& expr, const ScopePtr& scope);

  const Body& body_;
  const ScopePtr top_ = std::make_shared<Scope>();
  std::tm now_;
  Status status_;
  int line_ = 1;
  int depth_ = 0;
  std::size_t work_ = 0;
};

/// The arguments that a function, method or filter takes: how many at most, and by which names; "*" is any.
struct Takes {
  std::size_t values = 0;
  std::string_view names = {};
};
/// Fails for an argument that is not taken, since leaving it out would write something else.
bool takes(Evaluator& evaluator, std::string_view name, const Takes& taken, const Arguments& arguments);
/// The attribute of a value by its path, such as "function.name".
Value attribute_at(Evaluator& evaluator, const Value& value, const Value& path);

/// Global functions, methods of texts and mappings (builtins.cpp).
Value call_builtin(Evaluator& evaluator, const Builtin& builtin, const Arguments& arguments);
bool is_global_function(std::string_view name) noexcept;
/// Whether values like this have a method of that name.
bool has_method(const Value& self, std::string_view name) noexcept;

}  // namespace strata::detail::jinja
