#pragma once

#include <cstdint>

#include <strata/dispatch/cuda/lanes.h>
#include <strata/runtime/float16.h>

namespace strata::state_kernels::detail {

/// The sum of exact squares that is one partial of the gradient norm (simd/norm.h). `Lanes` is HalfWarp, or
/// EmulatedHalfWarp in tests.
template <class Lanes, class T>
STRATA_DEVICE_INLINE double square_sum(const Lanes& lanes, const T* x, std::int64_t n) {
  return lanes.template sum<double>(n, [&](std::int64_t i) {
    return static_cast<double>(to_f32(x[i])) * static_cast<double>(to_f32(x[i]));
  });
}

}  // namespace strata::state_kernels::detail
