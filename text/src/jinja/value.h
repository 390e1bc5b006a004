#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "jinja/text.h"

namespace strata::detail::jinja {

struct Value;
struct Macro;

/// The value of a name or key that does not exist. It prints as nothing; whatever else is done with it is an
/// error that names it.
struct Undefined {
  std::string name;
};
struct None {};
using List = std::vector<Value>;
/// In order of insertion, as Python's.
using Dict = std::vector<std::pair<std::string, Value>>;

/// A method with the value that it belongs to, or one of the global functions.
struct Builtin {
  std::string name;
  std::shared_ptr<const Value> self;  ///< null: a global function
};

inline constexpr int kMaxNesting = 64;
inline constexpr std::size_t kMaxWeight = std::size_t{1} << 26;

struct Value {
  std::variant<Undefined, None, bool, std::int64_t, double, std::shared_ptr<const Text>,
               std::shared_ptr<const List>, std::shared_ptr<const Dict>,
               std::shared_ptr<Dict>,  // a namespace, the only value that a template changes
               std::shared_ptr<const Builtin>, std::shared_ptr<const Macro>,
               std::uint64_t>  // a whole number above those of std::int64_t: it is printed, and no more
      held;
  /// Lists and mappings inside each other, at most kMaxNesting. A namespace counts as so many, since it could
  /// otherwise be made to contain itself.
  int nesting = 0;
  /// Bytes and values in it, each counted as often as it is there: what printing or comparing it costs. A
  /// list that holds one value twice, and is held twice itself, and so on, is small in memory and has no end
  /// otherwise.
  std::size_t weight = 1;

  Value() : held(Undefined{}) {}
  Value(None none) : held(none) {}
  Value(bool value) : held(value) {}
  Value(std::int64_t value) : held(value) {}
  Value(double value) : held(value) {}
  static Value large(std::uint64_t value);  ///< above the largest std::int64_t
  Value(Text text) : weight(1 + text.size()) { held = std::make_shared<const Text>(std::move(text)); }
  Value(const std::string& text) : Value(Text(text)) {}
  Value(List list);
  Value(Dict dict);
  Value(const char*) = delete;  // would be a bool

  static Value undefined(std::string name);
  static Value size(std::size_t n) { return {static_cast<std::int64_t>(n)}; }
  static Value new_namespace(Dict dict);

  const Text* text() const noexcept;
  const List* list() const noexcept;
  const Dict* dict() const noexcept;  ///< also of a namespace
  Dict* changeable() const noexcept;  ///< null unless it is a namespace
  const Builtin* builtin() const noexcept;
  const Macro* macro() const noexcept;
  bool is_undefined() const noexcept { return std::holds_alternative<Undefined>(held); }
  bool is_none() const noexcept { return std::holds_alternative<None>(held); }
  bool is_bool() const noexcept { return std::holds_alternative<bool>(held); }
  bool is_number() const noexcept;  ///< bool included, as in Python
  bool is_integer() const noexcept;
  bool is_large() const noexcept { return std::holds_alternative<std::uint64_t>(held); }
  std::int64_t integer() const noexcept;  ///< the value of a number
  double number() const noexcept;         ///< the value of a number
  /// The value of a key of a dict; null if there is none.
  const Value* find(std::string_view key) const noexcept;

  /// The weight as it is now; that of a namespace changes.
  std::size_t present_weight() const noexcept;
  bool truth() const noexcept;
  /// "a string", "a list", ... for messages.
  std::string_view kind() const noexcept;
};

bool equal(const Value& a, const Value& b) noexcept;
/// Python's str(), and with `quoted` its repr().
Text printed(const Value& value, bool quoted = false);
/// Python's json.dumps(ensure_ascii=False); `indent` < 0: on one line.
Text to_json(const Value& value, int indent, bool sort_keys = false, int depth = 0);

}  // namespace strata::detail::jinja
