#pragma once

#include <cstdint>

/// A row is processed by sixteen lanes: lane j handles elements j, j + 16, ... in order, and the lanes are
/// reduced in one fixed tree. The host does the same on every instruction set (simd/simd.h), so a half warp
/// produces the same bits. The functions on rows are templates over Lanes: HalfWarp, or the same lanes in one
/// thread of the host (emulation/half_warp.h).

/// Marks a function that is a template over Lanes or ThreadBlock: for the device under nvcc, for the host
/// otherwise.
#ifdef __CUDACC__
#define STRATA_DEVICE_INLINE __device__ __forceinline__
#else
#define STRATA_DEVICE_INLINE inline
#endif

namespace strata::dispatch {

inline constexpr int kLanes = 16;

#ifdef __CUDACC__
/// A half warp. All of its threads must make each call together.
class HalfWarp {
 public:
  __device__ HalfWarp() : lane_(static_cast<int>(threadIdx.x) % kLanes) {}

  __device__ bool is_leader() const { return lane_ == 0; }
  template <class F>
  __device__ void for_each(std::int64_t n, const F& f) const {
    for (std::int64_t i = lane_; i < n; i += kLanes) f(i);
  }
  /// The sum of f(0) ... f(n - 1), in every lane.
  template <class V, class F>
  __device__ V sum(std::int64_t n, const F& f) const {
    V x = 0;
    for (std::int64_t i = lane_; i < n; i += kLanes) x = x + f(i);
    // Adds lane i + 8 to lane i, then + 4, + 2, + 1. Since a + b equals b + a, all lanes get the same result.
    for (int width = kLanes / 2; width > 0; width /= 2) x = x + __shfl_xor_sync(mask(), x, width);
    return x;
  }
  /// f(0) + f(1) + ... + f(n - 1), added in order, in every lane; each lane computes every sixteenth.
  template <class F>
  __device__ float sum_in_order(std::int64_t n, const F& f) const {
    float total = 0.0f;
    for (std::int64_t first = 0; first < n; first += kLanes) {
      const float own = first + lane_ < n ? f(first + lane_) : 0.0f;
      for (int i = 0; i < kLanes && first + i < n; ++i) {
        const float next = __shfl_sync(mask(), own, i, kLanes);
        total = first + i == 0 ? next : total + next;
      }
    }
    return total;
  }
  template <class F>
  __device__ float max(std::int64_t n, float lowest, const F& f) const {
    float x = lowest;
    for (std::int64_t i = lane_; i < n; i += kLanes) {
      const float other = f(i);
      x = other > x ? other : x;
    }
    for (int width = kLanes / 2; width > 0; width /= 2) {
      const float other = __shfl_xor_sync(mask(), x, width);
      x = other > x ? other : x;
    }
    return x;
  }

 private:
  static __device__ unsigned mask() { return 0xFFFFu << (threadIdx.x % 32 / kLanes * kLanes); }
  int lane_;
};
#endif

}  // namespace strata::dispatch
