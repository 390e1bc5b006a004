// Comparisons, arithmetic, slices and mappings, as Python's.
#include <algorithm>
#include <cmath>

#include <strata/runtime/str.h>

#include "jinja/evaluator.h"

namespace strata::detail::jinja {
namespace {

constexpr std::size_t kMaxRepeated = std::size_t{1} << 20;

std::int64_t floored_quotient(std::int64_t a, std::int64_t b) {
  const std::int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

bool less(const Value& a, const Value& b) {
  if (a.text() != nullptr) return a.text()->bytes() < b.text()->bytes();
  if (a.is_integer() && b.is_integer()) return a.integer() < b.integer();
  return a.number() < b.number();
}

}  // namespace

Value Evaluator::comparison(const Expr& expr, const ScopePtr& scope) {
  Value left = evaluate(*expr.args[0], scope);
  for (std::size_t i = 0; i < expr.names.size() && !failed(); ++i) {
    Value right = evaluate(*expr.args[i + 1], scope);
    if (!compares(expr.names[i], left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

bool Evaluator::compares(const std::string& op, const Value& a, const Value& b) {
  if (failed() || !spend(a.present_weight())) return false;
  if (op == "==") return equal(a, b);
  if (op == "!=") return !equal(a, b);
  if (op == "in") return contains(b, a);
  if (op == "not in") return !contains(b, a);
  const bool ordered = (a.is_number() && b.is_number()) || (a.text() != nullptr && b.text() != nullptr);
  if (!ordered) {
    fail(str("'", op, "' between ", a.kind(), " and ", b.kind()));
    return false;
  }
  if (op == "<") return less(a, b);
  if (op == ">") return less(b, a);
  const bool real = a.is_number() && !(a.is_integer() && b.is_integer());  // a NaN is neither less nor not
  if (op == "<=") return real ? a.number() <= b.number() : !less(b, a);
  return real ? a.number() >= b.number() : !less(a, b);
}

bool Evaluator::contains(const Value& all, const Value& one) {
  if (const List* list = all.list()) {
    spend(all.weight);
    return std::any_of(list->begin(), list->end(), [&](const Value& value) { return equal(value, one); });
  }
  if (all.dict() != nullptr) return one.text() != nullptr && all.find(one.text()->bytes()) != nullptr;
  if (const Text* text = all.text(); text != nullptr && one.text() != nullptr) {
    spend(text->size());
    return text->bytes().find(one.text()->bytes()) != std::string::npos;
  }
  if (!all.is_undefined()) fail(str("'in' between ", one.kind(), " and ", all.kind()));
  return false;
}

Value Evaluator::arithmetic(const std::string& op, const Value& a, const Value& b) {
  if (failed()) return {};
  if (op == "+" && a.text() != nullptr && b.text() != nullptr) {
    Text text = *a.text();
    if (!spend(text.size() + b.text()->size())) return {};
    text.append(*b.text());
    return Value(std::move(text));
  }
  if (op == "+" && a.list() != nullptr && b.list() != nullptr) {
    List list = *a.list();
    if (!spend(list.size() + b.list()->size())) return {};
    list.insert(list.end(), b.list()->begin(), b.list()->end());
    return Value(std::move(list));
  }
  if (op == "*" && (a.text() != nullptr || b.text() != nullptr)) {
    const Value &text = a.text() != nullptr ? a : b, &times = a.text() != nullptr ? b : a;
    if (times.is_integer()) {
      const std::int64_t n = std::max<std::int64_t>(0, times.integer());
      if (n > 0 && text.text()->size() > kMaxRepeated / static_cast<std::size_t>(n))
        return fail(str("a text of more than ", kMaxRepeated, " bytes by '*'"));
      Text out;
      for (std::int64_t i = 0; i < n; ++i) out.append(*text.text());
      return spend(out.size()) ? Value(std::move(out)) : Value();
    }
  }
  for (const Value* value : {&a, &b})
    if (const Undefined* unknown = std::get_if<Undefined>(&value->held))
      return fail(str("'", unknown->name, "' is undefined"));
  if (!a.is_number() || !b.is_number()) return fail(str("'", op, "' between ", a.kind(), " and ", b.kind()));
  const bool divides = op == "/" || op == "//" || op == "%";
  if (divides && b.number() == 0) return fail(str("'", op, "' by 0"));
  if (op != "/" && a.is_integer() && b.is_integer()) {
    const std::int64_t x = a.integer(), y = b.integer();
    std::int64_t out = 0;
    bool overflows = false;
    if (op == "+")
      overflows = __builtin_add_overflow(x, y, &out);
    else if (op == "-")
      overflows = __builtin_sub_overflow(x, y, &out);
    else if (op == "*")
      overflows = __builtin_mul_overflow(x, y, &out);
    else if (divides && y == -1)
      overflows = __builtin_sub_overflow(std::int64_t{0}, op == "%" ? 0 : x, &out);
    else if (op == "//")
      out = floored_quotient(x, y);
    else if (op == "%")
      out = x - floored_quotient(x, y) * y;
    else {
      const double power = std::pow(static_cast<double>(x), static_cast<double>(y));
      if (y < 0) return Value(power);
      overflows = std::fabs(power) > 9e15;
      out = overflows ? 0 : static_cast<std::int64_t>(power);
    }
    return overflows ? fail(str("'", op, "' of ", x, " and ", y, " is too large")) : Value(out);
  }
  const double x = a.number(), y = b.number();
  if (op == "+") return Value(x + y);
  if (op == "-") return Value(x - y);
  if (op == "*") return Value(x * y);
  if (op == "/") return Value(x / y);
  if (op == "//") return Value(std::floor(x / y));
  if (op == "%") return Value(x - std::floor(x / y) * y);
  return Value(std::pow(x, y));
}

Value Evaluator::slice(const Expr& expr, const ScopePtr& scope) {
  const Value value = evaluate(*expr.args[0], scope);
  Value parts[3];
  bool given[3] = {};
  for (std::size_t i = 0; i < 3; ++i) {
    if (expr.args[i + 1] == nullptr) continue;
    parts[i] = evaluate(*expr.args[i + 1], scope);
    given[i] = !parts[i].is_none();
    if (given[i] && !parts[i].is_integer()) return fail(str("a slice to ", parts[i].kind()));
  }
  if (failed()) return {};
  const std::int64_t step = given[2] ? parts[2].integer() : 1;
  if (step == 0) return fail("a slice with a step of 0");
  const bool is_text = value.text() != nullptr;
  if (!is_text && value.list() == nullptr) {
    if (const Undefined* unknown = std::get_if<Undefined>(&value.held))
      return fail(str("'", unknown->name, "' is undefined"));
    return fail(str("a slice of ", value.kind()));
  }
  const std::vector<std::size_t> at =
      is_text ? character_offsets(value.text()->bytes()) : std::vector<std::size_t>();
  const std::int64_t n = is_text ? std::ssize(at) - 1 : std::ssize(*value.list());
  const std::int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
  const auto place = [&](std::size_t i, std::int64_t otherwise) {
    if (!given[i]) return otherwise;
    const std::int64_t wanted = parts[i].integer();
    return std::clamp(wanted < 0 ? wanted + n : wanted, low, high);
  };
  const std::int64_t first = place(0, step > 0 ? low : high), last = place(1, step > 0 ? high : low);
  if (!spend(static_cast<std::size_t>(n))) return {};
  Text text;
  List list;
  if (is_text && step == 1)
    return Value(value.text()->slice(at[static_cast<std::size_t>(first)],
                                     at[static_cast<std::size_t>(std::max(first, last))]));
  for (std::int64_t i = first; step > 0 ? i < last : i > last; i += step) {
    const auto k = static_cast<std::size_t>(i);
    if (is_text)
      text.append(value.text()->slice(at[k], at[k + 1]));
    else
      list.push_back((*value.list())[k]);
    if (step > n || step < -n) break;  // the next one would be outside, and may not be a number
  }
  return is_text ? Value(std::move(text)) : Value(std::move(list));
}

Arguments Evaluator::arguments_of(const Expr& expr, const ScopePtr& scope) {
  Arguments out;
  for (std::size_t i = 1; i < expr.args.size(); ++i) out.values.push_back(evaluate(*expr.args[i], scope));
  for (const auto& [name, value] : expr.named) out.named.emplace_back(name, evaluate(*value, scope));
  return out;
}

Value Evaluator::dict_of(const Expr& expr, const ScopePtr& scope) {
  Dict dict;
  for (std::size_t i = 0; i + 1 < expr.args.size(); i += 2) {
    const Value key = evaluate(*expr.args[i], scope);
    Value value = evaluate(*expr.args[i + 1], scope);
    if (key.text() == nullptr) return fail(str(key.kind(), " as the key of a mapping is not supported"));
    const auto same =
        std::find_if(dict.begin(), dict.end(), [&](const auto& e) { return e.first == key.text()->bytes(); });
    if (same != dict.end())
      same->second = std::move(value);
    else
      dict.emplace_back(key.text()->bytes(), std::move(value));
  }
  return Value(std::move(dict));
}

}  // namespace strata::detail::jinja
