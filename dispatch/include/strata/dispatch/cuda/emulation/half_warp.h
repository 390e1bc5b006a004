#pragma once

#include <cstdint>

#include <strata/dispatch/cuda/lanes.h>

namespace strata::dispatch {

/// The sixteen lanes of a HalfWarp in one thread of the host, one after the other: for tests, and for host
/// ops that run the code of the device.
class EmulatedHalfWarp {
 public:
  bool is_leader() const { return true; }
  template <class F>
  void for_each(std::int64_t n, const F& f) const {
    for (std::int64_t i = 0; i < n; ++i) f(i);
  }
  template <class V, class F>
  V sum(std::int64_t n, const F& f) const {
    V lanes[kLanes] = {};
    for (std::int64_t i = 0; i < n; ++i) lanes[i % kLanes] = lanes[i % kLanes] + f(i);
    for (int width = kLanes / 2; width > 0; width /= 2)
      for (int i = 0; i < width; ++i) lanes[i] = lanes[i] + lanes[i + width];
    return lanes[0];
  }
  template <class F>
  float sum_in_order(std::int64_t n, const F& f) const {
    float total = 0.0f;
    for (std::int64_t i = 0; i < n; ++i) total = i == 0 ? f(i) : total + f(i);
    return total;
  }
  template <class F>
  float max(std::int64_t n, float lowest, const F& f) const {
    float x = lowest;
    for (std::int64_t i = 0; i < n; ++i) {
      const float other = f(i);
      x = other > x ? other : x;
    }
    return x;
  }
};

}  // namespace strata::dispatch
