#pragma once

#include <cstdint>

#include <strata/dispatch/cuda/lanes.h>

#include "cuda/attention/warpgroup/wgmma_instr.h"
#ifndef __CUDACC__
#include "cuda/emulation/matrix_descriptor.h"  // make_descriptor() of tests
#endif

/// GEMMs of warpgroups (wgmma, compute capability 9.0 only): four warps multiply 64 rows together, and each
/// holds the accumulators of its own 16 rows in the layout of mma.sync. B is read from shared memory, A from
/// shared memory or registers. The templates over a Warp call functions that are overloaded for its type,
/// here for DeviceWarp and in emulation/wgmma.h for a warp on the host.
namespace strata::kernels::detail {

/// Rows of a head as wgmma reads them: panels of 64 columns, whose rows are 128 bytes and have their eight
/// 16-byte pieces permuted by the row index. Must be 1,024-byte aligned.
template <class T, int kHead, int kRows>
struct SwizzledRows {
  static constexpr int kLength = kHead, kStride = kHead, kPanel = 64;
  static_assert(kLength % kPanel == 0 && kRows % 8 == 0);
  T* at;
};

#ifdef __CUDACC__
template <class T>
STRATA_DEVICE_INLINE MatrixDescriptor make_descriptor(const T* at, int leading_byte_offset,
                                                      int stride_byte_offset) {
  return {descriptor_bits(static_cast<std::uint32_t>(__cvta_generic_to_shared(at)), leading_byte_offset,
                          stride_byte_offset),
          nullptr};
}
#endif

/// A K-major operand: columns [16 k, 16 k + 16) of the rows from `row` on. The rows are its M or N dimension.
template <class T, int kLength, int kRows>
STRATA_DEVICE_INLINE MatrixDescriptor k_major_operand(const SwizzledRows<T, kLength, kRows>& rows, int row,
                                                      int k) {
  // A panel has four blocks of 16 columns. The whole address is swizzled, so an operand may begin inside a
  // panel.
  return make_descriptor(rows.at + (k / 4 * kRows + row) * 64 + k % 4 * 16, 16, 1024);
}
/// An MN-major operand: rows [16 k, 16 k + 16). The columns are its M or N dimension.
template <class T, int kLength, int kRows>
STRATA_DEVICE_INLINE MatrixDescriptor mn_major_operand(const SwizzledRows<T, kLength, kRows>& rows, int k) {
  return make_descriptor(rows.at + k * 16 * 64, kRows * 128, 1024);
}

#ifdef __CUDACC__
/// Until a product has been waited for, wgmma instructions in flight own its accumulators: the compiler must
/// not move or touch them. So they are fenced before the first instruction and after the wait.
template <int kColumns, class Sums>
__device__ __forceinline__ void fence_accumulators(const DeviceWarp& warp, const Sums& sums) {
  unrolled<kColumns / 8, 4>([&](int n, int i) { asm volatile("" : "+f"(sums(warp.lane, n)[i])::"memory"); });
}
template <int kColumns, class Sums>
__device__ __forceinline__ void warpgroup_arrive(const DeviceWarp& warp, const Sums& sums) {
  fence_accumulators<kColumns>(warp, sums);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void commit_products(const DeviceWarp&) {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until all products but the newest kLeft are complete.
template <int kLeft>
__device__ __forceinline__ void wait_products(const DeviceWarp&) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
/// The same as fence_accumulators() for fragments of A, which must be complete before the instruction that
/// reads them.
__device__ __forceinline__ void fence_fragment(const DeviceWarp&, Fragment& fragment) {
  unrolled<4>([&](int i) { asm volatile("" : "+r"(fragment.values[i])::"memory"); });
}
template <int kBlocks, class Left>
__device__ __forceinline__ void fence_fragments(const DeviceWarp& warp, const Left& left) {
  unrolled<kBlocks>([&](int block) { fence_fragment(warp, left(warp.lane, block)); });
}
/// `part` says which 16 of the 64 rows are the warp's; only the emulation needs it.
template <class T, int kColumns, class Sums>
__device__ __forceinline__ void wgmma_ss(const DeviceWarp& warp, int /*part*/, const Sums& sums,
                                         const MatrixDescriptor& left, const MatrixDescriptor& right,
                                         bool accumulate) {
  wgmma<T, kColumns, false>([&](int n) { return sums(warp.lane, n); }, left, right, accumulate);
}
/// sums += left * right, where `right` is MN-major; left(lane) is the lane's fragment.
template <class T, int kColumns, class Sums, class Left>
__device__ __forceinline__ void wgmma_rs(const DeviceWarp& warp, const Sums& sums, const Left& left,
                                         const MatrixDescriptor& right) {
  wgmma<T, kColumns, true>([&](int n) { return sums(warp.lane, n); }, left(warp.lane), right, true);
}
#endif

/// Starts acc = a[row + ...] . b[...], as with PaddedRows, as one group of instructions. The four warps of
/// the group have rows 16 apart. Until it has been waited for, acc, a and b must not be touched.
template <int kN, class Warp, class T, int kLength, int kLeft, int kRight, class Acc>
STRATA_DEVICE_INLINE void start_gemm_ss(const Warp& warp, const SwizzledRows<T, kLength, kLeft>& a, int row,
                                        const SwizzledRows<T, kLength, kRight>& b, const Acc& acc) {
  static_assert(kRight == 8 * kN);
  const auto sums = [&](int lane, int n) { return acc(lane, 0, n); };
  warpgroup_arrive<kRight>(warp, sums);
  unrolled<kLength / 16>([&](int k) {
    wgmma_ss<T, kRight>(warp, row % 64 / 16, sums, k_major_operand(a, row / 64 * 64, k),
                        k_major_operand(b, 0, k), k > 0);
  });
  commit_products(warp);
}
/// Starts acc += left * b; left(lane, j) is the lane's fragment of 16 columns.
template <int kBlocks, class Warp, class T, int kLength, int kRight, class Left, class Acc>
STRATA_DEVICE_INLINE void start_gemm_rs(const Warp& warp, const Left& left,
                                        const SwizzledRows<T, kLength, kRight>& b, const Acc& acc) {
  static_assert(kRight == 16 * kBlocks);
  const auto sums = [&](int lane, int n) { return acc(lane, 0, n); };
  fence_fragments<kBlocks>(warp, left);
  warpgroup_arrive<kLength>(warp, sums);
  unrolled<kBlocks>([&](int block) {
    wgmma_rs<T, kLength>(
        warp, sums, [&](int lane) -> auto& { return left(lane, block); }, mn_major_operand(b, block));
  });
  commit_products(warp);
}
/// Waits for all products but the newest kLeft; acc, of kN times 8 columns, is one that is complete then.
template <int kLeft, int kN, class Warp, class Acc>
STRATA_DEVICE_INLINE void finish_gemm(const Warp& warp, const Acc& acc) {
  wait_products<kLeft>(warp);
  fence_accumulators<kN * 8>(warp, [&](int lane, int n) { return acc(lane, 0, n); });
}
/// Makes what is computed from scores complete here.
template <int kN, class Warp, class Acc>
STRATA_DEVICE_INLINE void fence_scores(const Warp& warp, const Acc& acc) {
  fence_accumulators<kN * 8>(warp, [&](int lane, int n) { return acc(lane, 0, n); });
}
/// Rounds accumulators to T, as fragments of A for start_gemm_rs().
template <class T, int kBlocks, class Warp, class Weights, class Left>
STRATA_DEVICE_INLINE void pack_fragments(const Warp& warp, const Weights& weights, const Left& left) {
  warp.for_each_lane([&](int lane) {
    unrolled<kBlocks, 4>([&](int block, int i) {
      const float* const two = weights(lane, 0, 2 * block + i / 2) + i % 2 * 2;
      left(lane, block).values[i] = Warp::template pack2<T>(two[0], two[1]);
    });
  });
}

/// acc = a[row + ...] . b[...], as with PaddedRows.
template <int kM, int kN, class Warp, class T, int kLength, int kLeft, int kRight, class Acc>
STRATA_DEVICE_INLINE void gemm_ss(const Warp& warp, const SwizzledRows<T, kLength, kLeft>& a, int row,
                                  const SwizzledRows<T, kLength, kRight>& b, const Acc& acc) {
  static_assert(kM == 1);
  start_gemm_ss<kN>(warp, a, row, b, acc);
  finish_gemm<0, kN>(warp, acc);
}

/// acc += weights[..., j] * b[j], as with PaddedRows.
template <int kM, int kBlocks, class Warp, class T, int kLength, int kRight, class Weights, class Acc>
STRATA_DEVICE_INLINE void gemm_rs(const Warp& warp, const Weights& weights,
                                  const SwizzledRows<T, kLength, kRight>& b, const Acc& acc) {
  static_assert(kM == 1);
  typename Warp::template PerLane<Fragment> fragments[kBlocks];
  const auto left = [&](int lane, int block) -> auto& { return Warp::at(fragments[block], lane); };
  pack_fragments<T, kBlocks>(warp, weights, left);
  start_gemm_rs<kBlocks>(warp, left, b, acc);
  finish_gemm<0, kLength / 8>(warp, acc);
}

}  // namespace strata::kernels::detail
