#pragma once

#include <strata/simd/math/host_device.h>
#include <strata/runtime/float16.h>

namespace strata::kernels::detail {

/// scale * x for an x that is stored in T, and stored in T again: the bits of the ops linear and scale.
template <class T>
STRATA_HD float scaled_once_stored(float x, float scale) {
  const float stored = to_f32(from_f32<T>(x));
  return scale == 1.0f ? stored : to_f32(from_f32<T>(stored * scale));
}

}  // namespace strata::kernels::detail
