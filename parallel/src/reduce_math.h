#pragma once

#include <cstdint>
#include <type_traits>

#include <strata/runtime/float16.h>

// The scalar arithmetic of reductions, for the host and, being constexpr, for device code. Both round
// additions alike, so the bits are the same; those of a NaN depend on the processor.
namespace strata::detail {

struct Sum {
  template <class T>
  static constexpr T apply(T a, T b) noexcept {
    return a + b;
  }
};
/// The maximum of a NaN and a number is NaN.
struct Max {
  template <class T>
  static constexpr T apply(T a, T b) noexcept {
    return a != a ? a : (b > a || b != b) ? b : a;
  }
};

constexpr double widen(double x) noexcept { return x; }
constexpr float widen(float x) noexcept { return x; }
constexpr std::int32_t widen(std::int32_t x) noexcept { return x; }
constexpr float widen(bf16 x) noexcept { return to_f32(x); }
constexpr float widen(f16 x) noexcept { return to_f32(x); }

template <class T, class Wide>
constexpr T narrow(Wide x) noexcept {
  if constexpr (std::is_same_v<T, Wide>)
    return x;
  else
    return from_f32<T>(x);
}

/// The reduction of one element over `n_parts`, in order; `element(part)` is a T of the part. 16-bit values
/// are added in f32 and rounded once, to nearest even.
template <class T, class Op, class Element>
constexpr T reduce_element(int n_parts, const Element& element) {
  auto value = widen(element(0));
  for (int part = 1; part < n_parts; ++part) value = Op::apply(value, widen(element(part)));
  return narrow<T>(value);
}

}  // namespace strata::detail
