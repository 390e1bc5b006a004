#pragma once

#include <cstdint>

#include <strata/simd/math/elementary.h>
#include <strata/simd/math/host_device.h>

/// 8-bit dynamic quantization: levels whose spacing grows with the value, after the dynamic tree quantization
/// of Dettmers et al. 2022 ("8-bit optimizers via block-wise quantization"). Decade k of [0, 1], from
/// 10^(k-K-1) to 10^(k-K) where K is the last decade, is divided linearly into 2^k levels. Here a level is
/// the upper end of its interval, so that 1 is a level for either sign: a block's largest value is exact, and
/// dequantized moments quantize to the same values again. The quantized value as a function of the real one
/// is then concave and piecewise linear, hence the minimum of the linear pieces, and its inverse is the
/// maximum of the inverse pieces. This needs no table and no search, and gives the same bits everywhere.
namespace strata::cpuopt {

using namespace simd;

/// The first moment is signed, the second is not negative.
enum class MomentKind : std::uint8_t { first, second };

/// Number of the last decade: signed quantized values range from -127 to 127, unsigned ones from 0 to 255.
template <MomentKind kKind>
inline constexpr int kLastDecade = kKind == MomentKind::first ? 6 : 7;

struct DecadeLine {
  float top_value, top_q;  ///< the upper end of the decade
  float q_per_value, value_per_q;
};
/// The linear piece of decade k, 0 <= k <= kLast. Decade 0 reaches down to 0.
template <int kLast>
STRATA_HD constexpr DecadeLine decade_line(int k) {
  double top = 1.0, cuts = 1.0;
  for (int i = k; i < kLast; ++i) top /= 10.0;
  for (int i = 0; i < k; ++i) cuts *= 2.0;
  const double width = k == 0 ? top : 0.9 * top;
  return {static_cast<float>(top), static_cast<float>(2.0 * cuts - 1.0), static_cast<float>(cuts / width),
          static_cast<float>(width / cuts)};
}

/// The pieces of all decades, as a constant: nvcc would leave the divisions above to the device.
template <int kLast>
struct DecadeLines {
  DecadeLine of[kLast + 1];
};
template <int kLast>
STRATA_HD constexpr DecadeLines<kLast> decade_lines() {
  DecadeLines<kLast> lines{};
  for (int k = 0; k <= kLast; ++k) lines.of[k] = decade_line<kLast>(k);
  return lines;
}

/// Quantizes r in [0, 1] without rounding to an integer; returns 0 for a NaN.
template <int kLast, class V>
STRATA_HD V quantize_dynamic(V r) {
  constexpr DecadeLines<kLast> lines = decade_lines<kLast>();
  constexpr DecadeLine first = lines.of[kLast];
  V q = (r - V(first.top_value)) * V(first.q_per_value) + V(first.top_q);
  STRATA_UNROLL_8
  for (int k = 0; k < kLast; ++k) {
    const DecadeLine line = lines.of[k];
    const V other = (r - V(line.top_value)) * V(line.q_per_value) + V(line.top_q);
    q = select_greater(q, other, other, q);
  }
  return select_greater(q, V(0.0f), q, V(0.0f));
}
/// The value in [0, 1] of an integer q.
template <int kLast, class V>
STRATA_HD V dequantize_dynamic(V q) {
  constexpr DecadeLines<kLast> lines = decade_lines<kLast>();
  constexpr DecadeLine first = lines.of[kLast];
  V value = (q - V(first.top_q)) * V(first.value_per_q) + V(first.top_value);
  STRATA_UNROLL_8
  for (int k = 0; k < kLast; ++k) {
    const DecadeLine line = lines.of[k];
    const V other = (q - V(line.top_q)) * V(line.value_per_q) + V(line.top_value);
    value = select_greater(other, value, other, value);
  }
  return select_greater(value, V(0.0f), value, V(0.0f));
}

STRATA_HD float abs_of(float x) {
  return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, x) & 0x7FFFFFFFu);
}

/// Quantizes a moment, without rounding, in a block whose largest magnitude is `scale` (0: all are zero);
/// `inverse` is 1 / scale. The largest magnitude gets the top value exactly, however x * inverse rounds. A
/// second moment above 0 gets at least 1, since the update divides by it.
template <MomentKind kKind, class V>
STRATA_HD V quantize_moment(V x, V scale, V inverse) {
  const V zero(0.0f), one(1.0f);
  const V magnitude = abs_of(x);
  V q = quantize_dynamic<kLastDecade<kKind>>(select_greater(scale, magnitude, magnitude * inverse, one));
  if constexpr (kKind == MomentKind::first) {
    q = select_greater(zero, x, zero - q, q);
  } else {
    const V min_q = select_greater(x, zero, one, zero);
    q = select_greater(min_q, q, min_q, q);
  }
  return select_greater(scale, zero, q, zero);
}
/// The value of an integer q as a fraction of the scale.
template <MomentKind kKind, class V>
STRATA_HD V dequantize_moment(V q) {
  if constexpr (kKind == MomentKind::second) return dequantize_dynamic<kLastDecade<kKind>>(q);
  const V zero(0.0f);
  const V magnitude = dequantize_dynamic<kLastDecade<kKind>>(abs_of(q));
  return select_greater(zero, q, zero - magnitude, magnitude);
}

}  // namespace strata::cpuopt
