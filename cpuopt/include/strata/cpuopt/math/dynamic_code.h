#pragma once

#include <cstdint>

#include <strata/cpuopt/math/elementary.h>
#include <strata/cpuopt/math/hd.h>

/// 8-bit codes whose spacing grows with the value, after the dynamic tree codes of Dettmers et al. 2022
/// ("8-bit optimizers via block-wise quantization"): decade k of [0, 1], from 10^(k-K-1) to 10^(k-K), is cut
/// linearly into 2^k codes, K being the last. Here the codes are the upper ends of the cuts, so that 1 has a
/// code of either sign: a block's largest value is kept exactly, and decoded moments encode to the same codes
/// again. Code as a function of the value is then one concave line of straight pieces, hence the least of the
/// pieces' lines, and the value the greatest of theirs: no table, no search, the same bits everywhere.
namespace strata::cpuopt {

/// The first moment has either sign, the second none.
enum class MomentKind : std::uint8_t { first, second };

/// The last decade: signed codes reach from -127 to 127, unsigned ones to 255.
template <MomentKind kKind>
inline constexpr int kLastDecade = kKind == MomentKind::first ? 6 : 7;

struct CodeLine {
  float top_value, top_code;  ///< the upper end of the decade
  float code_per_value, value_per_code;
};
/// Decade k of 0 ... last. The first reaches down to 0.
template <int kLast>
STRATA_HD constexpr CodeLine code_line(int k) {
  double top = 1.0, cuts = 1.0;
  for (int i = k; i < kLast; ++i) top /= 10.0;
  for (int i = 0; i < k; ++i) cuts *= 2.0;
  const double width = k == 0 ? top : 0.9 * top;
  return {static_cast<float>(top), static_cast<float>(2.0 * cuts - 1.0), static_cast<float>(cuts / width),
          static_cast<float>(width / cuts)};
}

/// Code, not yet rounded to a whole one, of r in [0, 1]; 0 for a NaN.
template <int kLast, class V>
STRATA_HD V code_of(V r) {
  constexpr CodeLine first = code_line<kLast>(kLast);
  V code = (r - V(first.top_value)) * V(first.code_per_value) + V(first.top_code);
  STRATA_UNROLL_8
  for (int k = 0; k < kLast; ++k) {
    const CodeLine line = code_line<kLast>(k);
    const V other = (r - V(line.top_value)) * V(line.code_per_value) + V(line.top_code);
    code = select_greater(code, other, other, code);
  }
  return select_greater(code, V(0.0f), code, V(0.0f));
}
/// The value of a whole code, in [0, 1].
template <int kLast, class V>
STRATA_HD V value_of_code(V code) {
  constexpr CodeLine first = code_line<kLast>(kLast);
  V value = (code - V(first.top_code)) * V(first.value_per_code) + V(first.top_value);
  STRATA_UNROLL_8
  for (int k = 0; k < kLast; ++k) {
    const CodeLine line = code_line<kLast>(k);
    const V other = (code - V(line.top_code)) * V(line.value_per_code) + V(line.top_value);
    value = select_greater(other, value, other, value);
  }
  return select_greater(value, V(0.0f), value, V(0.0f));
}

STRATA_HD float abs_of(float x) {
  return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, x) & 0x7FFFFFFFu);
}

/// The code of a moment, not yet rounded, in a block whose largest magnitude is `scale` (0: all are zero) and
/// `inverse` 1 / scale. The largest is its code exactly, whatever the product with the inverse rounds to; a
/// second moment above 0, by which an update is divided, never comes near 0.
template <MomentKind kKind, class V>
STRATA_HD V moment_code(V x, V scale, V inverse) {
  const V zero(0.0f), one(1.0f);
  const V magnitude = abs_of(x);
  V code = code_of<kLastDecade<kKind>>(select_greater(scale, magnitude, magnitude * inverse, one));
  if constexpr (kKind == MomentKind::first) {
    code = select_greater(zero, x, zero - code, code);
  } else {
    const V least = select_greater(x, zero, one, zero);
    code = select_greater(least, code, least, code);
  }
  return select_greater(scale, zero, code, zero);
}
/// A whole code's value as a part of the scale.
template <MomentKind kKind, class V>
STRATA_HD V moment_of_code(V code) {
  if constexpr (kKind == MomentKind::second) return value_of_code<kLastDecade<kKind>>(code);
  const V zero(0.0f);
  const V magnitude = value_of_code<kLastDecade<kKind>>(abs_of(code));
  return select_greater(zero, code, zero - magnitude, magnitude);
}

}  // namespace strata::cpuopt
