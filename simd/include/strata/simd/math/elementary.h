#pragma once

#include <cstdint>

#include <strata/simd/math/host_device.h>

/// Elementary functions as fixed sequences of IEEE additions, multiplications and divisions, written once
/// over a value type V (float, or a SIMD value with the same operators), so that every instruction set and
/// CUDA give the same bits. The functions of libm would not: glibc selects their versions by CPU.
namespace strata::simd {

// The operations that a value type needs besides + - * /. Those of SIMD types are found by argument-dependent
// lookup.

STRATA_HD float sqrt_of(float x) {
#ifdef __CUDA_ARCH__
  return sqrtf(x);
#else
  return __builtin_sqrtf(x);
#endif
}
/// a > b ? x : y, lane by lane; selects y if a or b is NaN.
STRATA_HD float select_greater(float a, float b, float x, float y) { return a > b ? x : y; }

/// 1.5 * 2^23: adding it rounds |x| < 2^22 to the nearest integer and leaves that integer in the low bits.
inline constexpr float kRoundMagic = 12582912.0f;

/// 2^n for t = n + kRoundMagic and n in [-126, 127].
STRATA_HD float pow2_of_rounded(float t) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &t, sizeof bits);
  bits = (bits + 127u) << 23;
  float out;
  __builtin_memcpy(&out, &bits, sizeof out);
  return out;
}

/// e^x. Relative error <= 2 units in the last place (measured 1.0) if the result is normal; a subnormal
/// result is rounded once more; +-inf, overflow and NaN behave as in IEEE 754. Polynomial of Cephes' expf
/// (Moshier 1992).
template <class V>
STRATA_HD V exp_of(V x) {
  const V zero(0.0f);
  x = select_greater(x, V(89.5f), V(89.5f), x);  // written so that a NaN passes through
  x = select_greater(V(-105.0f), x, V(-105.0f), x);
  const V n = (x * V(1.44269504088896341f) + V(kRoundMagic)) - V(kRoundMagic);
  V r = x - n * V(0.693359375f);  // ln 2 in two parts; n times the first part is exact
  r = r - n * V(-2.12194440e-4f);
  V q(1.9875691500e-4f);
  q = q * r + V(1.3981999507e-3f);
  q = q * r + V(8.3334519073e-3f);
  q = q * r + V(4.1665795894e-2f);
  q = q * r + V(1.6666665459e-1f);
  q = q * r + V(5.0000001201e-1f);
  q = q * (r * r) + r + V(1.0f);
  // 2^n in two factors, so that n from -151 to 129 needs no special case.
  const V shift = select_greater(zero, x, V(64.0f), V(-64.0f));
  const V rest = select_greater(zero, x, V(5.42101086242752217e-20f), V(18446744073709551616.0f));
  return (q * pow2_of_rounded((n + shift) + V(kRoundMagic))) * rest;
}

/// Natural logarithm of a normal positive x in f64, by the atanh series; the error is below 1e-15 relative to
/// max(1, |log x|). NaN for every other x.
STRATA_HD double log_of(double x) {
  if (!(x >= 2.2250738585072014e-308 && x <= 1.7976931348623157e308)) return __builtin_nan("");
  std::uint64_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  // The exponent is counted from sqrt(1/2), so that the mantissa is in [sqrt(1/2), sqrt(2)).
  const std::uint64_t shifted = bits - 0x3FE6A09E667F3BCDull;
  const std::int64_t e = static_cast<std::int64_t>(shifted) >> 52;
  const std::uint64_t mantissa_bits = bits - (static_cast<std::uint64_t>(e) << 52);
  double mantissa;
  __builtin_memcpy(&mantissa, &mantissa_bits, sizeof mantissa);
  const double s = (mantissa - 1.0) / (mantissa + 1.0);
  const double z = s * s;
  double sum = 1.0 / 23.0;
  for (int k = 21; k >= 3; k -= 2) sum = sum * z + 1.0 / static_cast<double>(k);
  return static_cast<double>(e) * 0.69314718055994530942 + (2.0 * s + 2.0 * s * (z * sum));
}

/// 1 / d, rounded once, where 1 <= d < 2^126 or d is a NaN. On a GPU it takes the steps with which the
/// compiler divides such numbers, without the call for all others, which ends the packing of loads.
template <class V>
STRATA_HD V reciprocal_of(V d) {
#ifdef __CUDA_ARCH__
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
  return __fmaf_rn(r, -__fmaf_rn(d, r, -1.0f), r);
#else
  return V(1.0f) / d;
#endif
}

/// `value` is 1 / (1 + e^-y) and `complement` is 1 - value, both with full relative accuracy while e^|y| is
/// finite.
template <class V>
struct Sigmoid {
  V value;
  V complement;
};
template <class V>
STRATA_HD Sigmoid<V> sigmoid_of(V y) {
  // Below -87, e^-y would overflow, and the complement would be infinity * 0, a NaN.
  y = select_greater(V(-87.0f), y, V(-87.0f), y);
  const V e = exp_of(V(0.0f) - y);
  const V value = reciprocal_of(V(1.0f) + e);
  return {value, e * value};
}

/// tanh x. The absolute error is below 2e-7, the relative error near 0 below 3 units in the last place. As in
/// Cephes' tanhf (Moshier 1992): a polynomial up to 0.625, the exponential beyond.
template <class V>
STRATA_HD V tanh_of(V x) {
  const V zero(0.0f), one(1.0f);
  const V z = x * x;
  V q(-5.70498872745e-3f);
  q = q * z + V(2.06390887954e-2f);
  q = q * z + V(-5.37397155531e-2f);
  q = q * z + V(1.33314422036e-1f);
  q = q * z + V(-3.33332819422e-1f);
  const V near = x + x * (z * q);
  const V size = select_greater(zero, x, zero - x, x);
#ifdef __CUDA_ARCH__
  // Beyond 30 nothing is left of the quotient; 2 is a power of two, so its product is the rounded quotient.
  const V far =
      one - V(2.0f) * reciprocal_of(exp_of(select_greater(size, V(30.0f), V(60.0f), size + size)) + one);
#else
  const V far = one - V(2.0f) / (exp_of(size + size) + one);
#endif
  return select_greater(size, V(0.625f), select_greater(zero, x, zero - far, far), near);
}

/// GELU in its tanh form (Hendrycks & Gimpel 2016), computed as x * sigmoid(2u), since 1 + tanh(u) would
/// cancel for negative x.
template <class V>
STRATA_HD V gelu_of(V x) {
  const V u2 = V(1.5957691216057308f) * (x + V(0.044715f) * (x * x * x));  // 2 sqrt(2 / pi)
  return x * sigmoid_of(u2).value;
}

/// d gelu(x) / dx.
template <class V>
STRATA_HD V gelu_derivative_of(V x) {
  const V u2 = V(1.5957691216057308f) * (x + V(0.044715f) * (x * x * x));
  const V du2 = V(1.5957691216057308f) * (V(1.0f) + V(0.134145f) * (x * x));
  const Sigmoid<V> s = sigmoid_of(u2);
  return s.value + x * (s.value * s.complement) * du2;
}

}  // namespace strata::simd
