#pragma once

#include <cstdint>

#include <strata/dispatch/cuda/lanes.h>

#include "cuda/attention/wgmma_instr.h"
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
/// From here to `warpgroup_commit_and_wait` wgmma instructions in flight own the accumulators: the compiler
/// must not move or touch them.
template <int kColumns, class Sums>
__device__ __forceinline__ void fence_accumulators(const DeviceWarp& warp, const Sums& sums) {
  unrolled<kColumns / 8, 4>([&](int n, int i) { asm volatile("" : "+f"(sums(warp.lane, n)[i])::"memory"); });
}
template <int kColumns, class Sums>
__device__ __forceinline__ void warpgroup_arrive(const DeviceWarp& warp, const Sums& sums) {
  fence_accumulators<kColumns>(warp, sums);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
template <int kColumns, class Sums>
__device__ __forceinline__ void warpgroup_commit_and_wait(const DeviceWarp& warp, const Sums& sums) {
  asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
  fence_accumulators<kColumns>(warp, sums);
}
/// The same for fragments of A, which must be complete before the instruction that reads them.
__device__ __forceinline__ void fence_fragment(const DeviceWarp&, Fragment& fragment) {
  unrolled<4>([&](int i) { asm volatile("" : "+r"(fragment.values[i])::"memory"); });
}
/// `part` says which 16 of the 64 rows are the warp's; only the emulation needs it.
template <class T, int kColumns, class Sums>
__device__ __forceinline__ void wgmma_ss(const DeviceWarp& warp, int /*part*/, const Sums& sums,
                                         const MatrixDescriptor& left, const MatrixDescriptor& right,
                                         bool accumulate) {
  wgmma<T, kColumns, false>([&](int n) { return sums(warp.lane, n); }, left, right, accumulate);
}
/// sums += left * right, where `right` is MN-major.
template <class T, int kColumns, class Sums>
__device__ __forceinline__ void wgmma_rs(const DeviceWarp& warp, const Sums& sums, const Fragment& left,
                                         const MatrixDescriptor& right) {
  wgmma<T, kColumns, true>([&](int n) { return sums(warp.lane, n); }, left, right, true);
}
#endif

/// acc = a[row + ...] . b[...], as with PaddedRows. The four warps of the group have rows 16 apart.
template <int kM, int kN, class Warp, class T, int kLength, int kLeft, int kRight, class Acc>
STRATA_DEVICE_INLINE void gemm_ss(const Warp& warp, const SwizzledRows<T, kLength, kLeft>& a, int row,
                                  const SwizzledRows<T, kLength, kRight>& b, const Acc& acc) {
  static_assert(kM == 1 && kRight == 8 * kN);
  const auto sums = [&](int lane, int n) { return acc(lane, 0, n); };
  warpgroup_arrive<kRight>(warp, sums);
  unrolled<kLength / 16>([&](int k) {
    wgmma_ss<T, kRight>(warp, row % 64 / 16, sums, k_major_operand(a, row / 64 * 64, k),
                        k_major_operand(b, 0, k), k > 0);
  });
  warpgroup_commit_and_wait<kRight>(warp, sums);
}

/// acc += weights[..., j] * b[j], as with PaddedRows.
template <int kM, int kBlocks, class Warp, class T, int kLength, int kRight, class Weights, class Acc>
STRATA_DEVICE_INLINE void gemm_rs(const Warp& warp, const Weights& weights,
                                  const SwizzledRows<T, kLength, kRight>& b, const Acc& acc) {
  static_assert(kM == 1 && kRight == 16 * kBlocks);
  const auto sums = [&](int lane, int n) { return acc(lane, 0, n); };
  typename Warp::template PerLane<Fragment> left[kBlocks];
  warp.for_each_lane([&](int lane) {
    unrolled<kBlocks, 4>([&](int block, int i) {
      const float* const two = weights(lane, 0, 2 * block + i / 2) + i % 2 * 2;
      Warp::at(left[block], lane).values[i] = Warp::template pack2<T>(two[0], two[1]);
    });
  });
  unrolled<kBlocks>([&](int block) { fence_fragment(warp, left[block]); });
  warpgroup_arrive<kLength>(warp, sums);
  unrolled<kBlocks>(
      [&](int block) { wgmma_rs<T, kLength>(warp, sums, left[block], mn_major_operand(b, block)); });
  warpgroup_commit_and_wait<kLength>(warp, sums);
}

}  // namespace strata::kernels::detail
