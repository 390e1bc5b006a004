#pragma once

#include <cstdint>
#include <type_traits>

#include <strata/simd/math/host_device.h>
#include <strata/runtime/float16.h>

namespace strata::kernels::detail {

/// The number of values that a thread casts, with vector loads and stores where they are aligned.
inline constexpr int kCastVector = 8;
template <class T>
struct alignas(16) CastVector {
  T values[kCastVector];
};

template <class Y, class X>
STRATA_HD Y cast_value(X x) {
  if constexpr (std::is_same_v<X, Y>)
    return x;
  else
    return from_f32<Y>(to_f32(x));
}

/// The value that replaces y: x, or y + x.
template <bool kAdds, class Y, class X>
STRATA_HD Y cast_onto(Y y, X x) {
  if constexpr (kAdds)
    return from_f32<Y>(to_f32(y) + to_f32(x));
  else
    return cast_value<Y>(x);
}

/// Casts vector `i`, counted over all rows, or adds it to y. The last vector of a row may be partial.
template <bool kWide, bool kAdds, class X, class Y>
STRATA_HD void cast_vector(const X* x, std::int64_t x_stride, Y* y, std::int64_t y_stride,
                           std::int64_t columns, std::int64_t i) {
  const std::int64_t vectors = (columns + kCastVector - 1) / kCastVector, row = i / vectors,
                     first = i % vectors * kCastVector;
  x += row * x_stride + first;
  y += row * y_stride + first;
  if (kWide && first + kCastVector <= columns) {
    const auto from = *reinterpret_cast<const CastVector<X>*>(x);
    CastVector<Y> to;
    if constexpr (kAdds) to = *reinterpret_cast<const CastVector<Y>*>(y);
    for (int e = 0; e < kCastVector; ++e) to.values[e] = cast_onto<kAdds>(to.values[e], from.values[e]);
    *reinterpret_cast<CastVector<Y>*>(y) = to;
    return;
  }
  for (int e = 0; e < kCastVector && first + e < columns; ++e) y[e] = cast_onto<kAdds>(y[e], x[e]);
}

}  // namespace strata::kernels::detail
