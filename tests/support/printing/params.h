#pragma once

#include <concepts>
#include <cstddef>
#include <ostream>
#include <string_view>
#include <type_traits>
#include <utility>

#include <gtest/gtest-printers.h>

// How GoogleTest prints the parameters of tests, and what matchers compare. Without this a struct or an
// enumerator is its bytes, which name no case and contain addresses that differ from run to run. Every test
// program includes it.

namespace strata::test {

template <class E>
concept NamedEnum = std::is_enum_v<E> && requires(const E e, std::ostream& out) {
  out << to_string(e);
};

/// The name of the enumerator V, as the compiler writes it; empty if V is the value of none.
template <auto V>
constexpr std::string_view enumerator_name() {
  std::string_view name =
      __PRETTY_FUNCTION__;  // "... [with auto V = strata::Tier::device; ...]" or "[V = ...]"
  name.remove_prefix(name.find("V = ") + 4);
  name = name.substr(0, name.find_first_of(";]"));
  if (name.starts_with('(')) return {};  // a cast
  return name.substr(name.rfind(':') + 1);
}

/// Enumerations without to_string(), whose values are below 16.
template <class E>
concept PlainEnum = std::is_enum_v<E> && !std::is_convertible_v<E, int> && !NamedEnum<E> &&
                    !requires(const E e, std::ostream* out) {
  PrintTo(e, out);
};
template <PlainEnum E, std::size_t... Is>
void print_enumerator(E value, std::ostream& out, std::index_sequence<Is...>) {
  std::string_view name;
  ((static_cast<std::size_t>(value) == Is ? void(name = enumerator_name<static_cast<E>(Is)>()) : void()),
   ...);
  if (name.empty())
    out << static_cast<long long>(value);
  else
    out << name;
}

struct AnyField {
  template <class T>
  operator T() const;
};

/// Whether the aggregate T has at least as many members as Is.
template <class T, std::size_t... Is>
constexpr bool has_fields(std::index_sequence<Is...>) {
  return requires { T{(static_cast<void>(Is), AnyField{})...}; };
}
/// The number of members of the aggregate T, or 17 for more than 16.
template <class T, std::size_t N = 17>
constexpr std::size_t n_fields() {
  if constexpr (N == 0 || has_fields<T>(std::make_index_sequence<N>()))
    return N;
  else
    return n_fields<T, N - 1>();
}

template <class T>
concept PrintedByFields = std::is_class_v<T> && std::is_aggregate_v<T> && std::copy_constructible<T> &&
    n_fields<T>()
> 0 && n_fields<T>() <= 16 && !requires(const T& value, std::ostream& out) { out << value; }
&&!requires(const T& value, std::ostream* out) { PrintTo(value, out); }
&&!requires(const T& value) { value.begin(); };

template <class... Fields>
void print_fields(std::ostream& out, const Fields&... fields) {
  const char* separator = "{";
  ((out << separator, ::testing::internal::UniversalPrint(fields, &out), separator = ", "), ...);
  out << "}";
}

template <PrintedByFields T>
void print_aggregate(const T& value, std::ostream& out) {
  constexpr std::size_t n = n_fields<T>();
  const auto print = [&](const auto&... fields) { print_fields(out, fields...); };
  // clang-format off
  if constexpr (n == 1) { const auto& [a] = value; print(a); }
  else if constexpr (n == 2) { const auto& [a, b] = value; print(a, b); }
  else if constexpr (n == 3) { const auto& [a, b, c] = value; print(a, b, c); }
  else if constexpr (n == 4) { const auto& [a, b, c, d] = value; print(a, b, c, d); }
  else if constexpr (n == 5) { const auto& [a, b, c, d, e] = value; print(a, b, c, d, e); }
  else if constexpr (n == 6) { const auto& [a, b, c, d, e, f] = value; print(a, b, c, d, e, f); }
  else if constexpr (n == 7) { const auto& [a, b, c, d, e, f, g] = value; print(a, b, c, d, e, f, g); }
  else if constexpr (n == 8) { const auto& [a, b, c, d, e, f, g, h] = value; print(a, b, c, d, e, f, g, h); }
  else if constexpr (n == 9) { const auto& [a, b, c, d, e, f, g, h, i] = value; print(a, b, c, d, e, f, g, h, i); }
  else if constexpr (n == 10) { const auto& [a, b, c, d, e, f, g, h, i, j] = value; print(a, b, c, d, e, f, g, h, i, j); }
  else if constexpr (n == 11) { const auto& [a, b, c, d, e, f, g, h, i, j, k] = value; print(a, b, c, d, e, f, g, h, i, j, k); }
  else if constexpr (n == 12) { const auto& [a, b, c, d, e, f, g, h, i, j, k, l] = value; print(a, b, c, d, e, f, g, h, i, j, k, l); }
  else if constexpr (n == 13) { const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = value; print(a, b, c, d, e, f, g, h, i, j, k, l, m); }
  else if constexpr (n == 14) { const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, o] = value; print(a, b, c, d, e, f, g, h, i, j, k, l, m, o); }
  else if constexpr (n == 15) { const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, o, p] = value; print(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p); }
  else { const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q] = value; print(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q); }
  // clang-format on
}

}  // namespace strata::test

namespace testing::internal {

template <class E>
requires strata::test::NamedEnum<E>
class UniversalPrinter<E> {
 public:
  static void Print(const E& value, std::ostream* out) { *out << to_string(value); }
};

template <class E>
requires strata::test::PlainEnum<E>
class UniversalPrinter<E> {
 public:
  static void Print(const E& value, std::ostream* out) {
    strata::test::print_enumerator(value, *out, std::make_index_sequence<16>());
  }
};

template <class T>
requires strata::test::PrintedByFields<T>
class UniversalPrinter<T> {
 public:
  static void Print(const T& value, std::ostream* out) { strata::test::print_aggregate(value, *out); }
};

template <class Result, class... Arguments>
class UniversalPrinter<Result (*)(Arguments...)> {
 public:
  static void Print(Result (*)(Arguments...), std::ostream* out) { *out << "a function"; }
};

template <>
class UniversalPrinter<const char*> {
 public:
  static void Print(const char* value, std::ostream* out) { *out << (value == nullptr ? "null" : value); }
};

}  // namespace testing::internal
