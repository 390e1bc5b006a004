#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include <strata/simd/math/host_device.h>
#include <strata/dispatch/cuda/lanes.h>

#include "cuda/mma.h"

/// The warps of a block, each with values in the registers of its lanes. Kernel code is a template over a
/// ThreadBlock, which provides the warps: BlockWarps is a block on the device, EmulatedWarps one on the host
/// (emulation/warps.h). The coordinates of the elements in a lane's registers are written down once (mma.h).
///
/// A value of each lane is a `PerLane<V>`, in which at(value, lane) is that lane's; on the device it is the
/// thread's own. Operations that all lanes of a warp perform together (mma, ldmatrix_x4, quad_reduce) are
/// passed functions of the lane.

namespace strata::kernels::detail {

/// Calls f(i, j, ...) for i < kFirst, j < ..., fully unrolled: arrays indexed by them stay in registers.
template <int kFirst, int... kOthers, class F>
STRATA_DEVICE_INLINE void unrolled(const F& f) {
#ifdef __CUDACC__
#pragma unroll
#endif
  for (int i = 0; i < kFirst; ++i)
    if constexpr (sizeof...(kOthers) == 0)
      f(i);
    else
      unrolled<kOthers...>([&](auto... others) { f(i, others...); });
}

/// Rows of a head in shared memory, padded by 16 bytes: the same eight columns of eight rows then cover all
/// banks, for heads of 64, 96 and 128 values.
template <class T, int kHead>
struct PaddedRows {
  static constexpr int kLength = kHead, kStride = kHead + 8;
  T* at;
  STRATA_HD T* row(int i) const { return at + i * kStride; }
  /// The eight values from column `c` on, a multiple of eight.
  STRATA_HD T* piece(int i, int c) const { return row(i) + c; }
};

/// Returns `x`, but the compiler does not know that: what is derived from it is recomputed, not kept in
/// registers.
STRATA_DEVICE_INLINE std::int64_t opaque(std::int64_t x) {
#ifdef __CUDACC__
  asm volatile("" : "+l"(x));
#endif
  return x;
}

/// Stores two adjacent values at once.
template <class T>
STRATA_DEVICE_INLINE void store_pair(T* to, float low, float high) {
  struct alignas(4) Two {
    T values[2];
  };
  *reinterpret_cast<Two*>(to) = {{from_f32<T>(low), from_f32<T>(high)}};
}

/// The greater of two values; a NaN is not chosen. One instruction, where a comparison and a choice are two.
STRATA_DEVICE_INLINE float max_of(float a, float b) {
#ifdef __CUDACC__
  return fmaxf(a, b);
#else
  return std::fmax(a, b);
#endif
}

/// a * b + c, rounded once. The compiler fuses nothing on its own (--fmad=false), so that the host's bits are
/// these.
STRATA_DEVICE_INLINE float fused_multiply_add(float a, float b, float c) {
#ifdef __CUDACC__
  return __fmaf_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

/// 2 to the power x; on the device by ex2.approx, with an error of up to 2 ulp.
STRATA_DEVICE_INLINE float exp2_approx(float x) {
#ifdef __CUDACC__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return std::exp2(x);
#endif
}

/// The tile of scores of warps that multiply together, and whether its mask was evaluated.
struct ScoreTileInfo {
  std::int64_t query, queries, key, keys;
  bool is_masked;
};

#ifdef __CUDACC__
struct DeviceWarp {
  template <class V>
  using PerLane = V;
  template <class V>
  static __device__ __forceinline__ V& at(V& value, int) {
    return value;
  }

  int lane;

  /// Tests record here which tiles of scores are masked.
  static __device__ __forceinline__ void on_scores(const ScoreTileInfo&) {}
  template <class F>
  __device__ __forceinline__ void for_each_lane(const F& f) const {
    f(lane);
  }
  template <class T, class C, class A, class B>
  __device__ __forceinline__ void mma(const C& c, const A& a, const B& b) const {
    detail::mma<T>(c(lane), a(lane), b(lane));
  }
  /// An address in the shared state space: adding a constant to it costs no register.
  struct SharedAddress {
    unsigned at;
  };
  template <class Row>
  __device__ __forceinline__ SharedAddress shared_address(const Row& row_of) const {
    return {static_cast<unsigned>(__cvta_generic_to_shared(row_of(lane)))};
  }
  template <bool kTransposed, class Into>
  __device__ __forceinline__ void ldmatrix_x4(const Into& into, SharedAddress shared_address,
                                              int offset) const {
    unsigned* const r = into(lane);
    const unsigned from = shared_address.at + static_cast<unsigned>(offset) * 2;
    if constexpr (kTransposed)
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                   : "r"(from)
                   : "memory");
    else
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                   : "r"(from)
                   : "memory");
  }
  template <class At, class Combine>
  __device__ __forceinline__ void quad_reduce(const At& at, const Combine& combine) const {
    float& x = at(lane);
    x = combine(x, __shfl_xor_sync(~0u, x, 1));
    x = combine(x, __shfl_xor_sync(~0u, x, 2));
  }
  template <class T>
  static __device__ __forceinline__ unsigned pack2(float low, float high) {
    unsigned both;
    if constexpr (std::is_same_v<T, bf16>)
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    else
      asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
  }
};

template <int kWarps>
struct BlockWarps {
  static constexpr int kThreads = kWarps * 32;
  /// The state of every lane of the block; on the device, the thread's own.
  template <class V>
  using State = V;

  /// Calls f(warp, index of the warp, its part of the state).
  template <class V, class F>
  __device__ __forceinline__ void for_each_warp(V& state, const F& f) const {
    const int thread = static_cast<int>(threadIdx.x);
    f(DeviceWarp{thread % 32}, thread / 32, state);
  }
  template <class F>
  __device__ __forceinline__ void for_each_thread(const F& f) const {
    f(static_cast<int>(threadIdx.x));
  }
  /// Starts copying 16 bytes, or zeros if not `valid`, to shared memory.
  static __device__ __forceinline__ void cp_async(void* to, const void* from, bool valid) {
    const int bytes = valid ? 16 : 0;  // bytes that are not read become zero
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     static_cast<unsigned>(__cvta_generic_to_shared(to))),
                 "l"(from), "r"(bytes)
                 : "memory");
  }
  /// Makes one group of all copies since the last call.
  static __device__ __forceinline__ void commit_group() {
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  /// Waits until all groups but the newest kLeft have arrived, then synchronizes the block.
  template <int kLeft>
  static __device__ __forceinline__ void wait_group() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
    __syncthreads();
  }
  static __device__ __forceinline__ void sync() { __syncthreads(); }
};
#endif

/// Starts copying rows [first, first + kRows) of a head; rows past the end of the sequence become zero.
template <int kRows, class ThreadBlock, class Rows, class T>
STRATA_DEVICE_INLINE void cp_async_rows(const ThreadBlock& block, const Rows& to, const T* head,
                                        std::int64_t ld, std::int64_t first, std::int64_t seq) {
  constexpr int kPerRow = Rows::kLength / 8, kPieces = kRows * kPerRow / ThreadBlock::kThreads;
  static_assert(kRows * kPerRow % ThreadBlock::kThreads == 0);
  const T* const from = head + first * ld;
  const int valid = static_cast<int>(seq - first < kRows ? seq - first : kRows), apart = static_cast<int>(ld);
  block.for_each_thread([&](int thread) {
  // Not unrolled: the addresses of many pieces at once would not stay in registers.
#ifdef __CUDACC__
#pragma unroll 1
#endif
    for (int piece = 0; piece < kPieces; ++piece) {
      const int e = thread + piece * ThreadBlock::kThreads, i = e / kPerRow, c = e % kPerRow * 8;
      ThreadBlock::cp_async(to.piece(i, c), from + (i < valid ? i * apart : 0) + c, i < valid);
    }
  });
}

/// A lane's fragment of a block of 16 rows of A, or of 16 columns of B.
struct Fragment {
  unsigned values[4];
};

/// acc(lane, m, n) = a[row + ...] . b[...], over whole rows, with both operands in shared memory. acc(lane,
/// m, n) are the lane's four accumulators of rows 16 m on and columns 8 n on.
template <int kM, int kN, class Warp, class T, int kLength, class Acc>
STRATA_DEVICE_INLINE void gemm_ss(const Warp& warp, const PaddedRows<T, kLength>& a, int row,
                                  const PaddedRows<T, kLength>& b, const Acc& acc) {
  warp.for_each_lane(
      [&](int lane) { unrolled<kM, kN, 4>([&](int m, int n, int i) { acc(lane, m, n)[i] = 0.0f; }); });
  constexpr int kBlock = 16 * PaddedRows<T, kLength>::kStride;  // elements of 16 rows
  const auto lefts =
      warp.shared_address([&](int lane) { return a.row(row + lane % 8 + lane / 8 % 2 * 8) + lane / 16 * 8; });
  const auto rights =
      warp.shared_address([&](int lane) { return b.row(lane % 8 + lane / 16 * 8) + lane / 8 % 2 * 8; });
  unrolled<kLength / 16>([&](int k) {
    typename Warp::template PerLane<Fragment> left[kM];
    unrolled<kM>([&](int m) {
      warp.template ldmatrix_x4<false>([&](int lane) { return Warp::at(left[m], lane).values; }, lefts,
                                       m * kBlock + k * 16);
    });
    unrolled<kN / 2>([&](int two) {
      typename Warp::template PerLane<Fragment> right;
      warp.template ldmatrix_x4<false>([&](int lane) { return Warp::at(right, lane).values; }, rights,
                                       two * kBlock + k * 16);
      unrolled<kM, 2>([&](int m, int half) {
        warp.template mma<T>([&](int lane) { return acc(lane, m, 2 * two + half); },
                             [&](int lane) { return Warp::at(left[m], lane).values; },
                             [&](int lane) { return Warp::at(right, lane).values + 2 * half; });
      });
    });
  });
}

/// acc(lane, m, n) += weights[..., j] * b[j], over the rows j < 16 kBlocks of b. weights(lane, m, n) is an A
/// operand in registers: laid out as accumulators are, and rounded to T.
template <int kM, int kBlocks, class Warp, class T, int kLength, class Weights, class Acc>
STRATA_DEVICE_INLINE void gemm_rs(const Warp& warp, const Weights& weights, const PaddedRows<T, kLength>& b,
                                  const Acc& acc) {
  constexpr int kBlock = 16 * PaddedRows<T, kLength>::kStride;
  const auto rights =
      warp.shared_address([&](int lane) { return b.row(lane % 8 + lane / 8 % 2 * 8) + lane / 16 * 8; });
  unrolled<kBlocks>([&](int block) {
    typename Warp::template PerLane<Fragment> left[kM];
    warp.for_each_lane([&](int lane) {
      unrolled<kM, 4>([&](int m, int i) {
        const float* const two = weights(lane, m, 2 * block + i / 2) + i % 2 * 2;
        Warp::at(left[m], lane).values[i] = Warp::template pack2<T>(two[0], two[1]);
      });
    });
    unrolled<kLength / 16>([&](int two) {
      typename Warp::template PerLane<Fragment> right;
      warp.template ldmatrix_x4<true>([&](int lane) { return Warp::at(right, lane).values; }, rights,
                                      block * kBlock + two * 16);
      unrolled<kM, 2>([&](int m, int half) {
        warp.template mma<T>([&](int lane) { return acc(lane, m, 2 * two + half); },
                             [&](int lane) { return Warp::at(left[m], lane).values; },
                             [&](int lane) { return Warp::at(right, lane).values + 2 * half; });
      });
    });
  });
}

/// As with SwizzledRows (attention/warpgroup/wgmma.h), whose products are asynchronous: these are complete at
/// once.
template <int kN, class Warp, class T, int kLength, class Acc>
STRATA_DEVICE_INLINE void start_gemm_ss(const Warp& warp, const PaddedRows<T, kLength>& a, int row,
                                        const PaddedRows<T, kLength>& b, const Acc& acc) {
  gemm_ss<1, kN>(warp, a, row, b, acc);
}

}  // namespace strata::kernels::detail
