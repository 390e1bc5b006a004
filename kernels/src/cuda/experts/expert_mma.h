#pragma once

#include <strata/runtime/float16.h>

#include "cuda/experts/expert_fma.h"
#include "cuda/experts/expert_tiles.h"
#include "cuda/warps.h"

/// A tile of a product of 16-bit operands on tensor cores (mma.sync), with f32 sums. The next slice of the
/// inner extent is loaded by cp.async while one is multiplied. An operand is stored either with a contiguous
/// inner extent, or with a contiguous outer one; ldmatrix transposes the latter. All extents and leading
/// dimensions are multiples of 8, and operands are aligned to 16 bytes.
namespace strata::kernels::detail {

inline constexpr int kMmaSlice = 32;

/// One slice of an operand in shared memory. A row is padded by 16 bytes, so that the same eight columns of
/// eight rows cover all banks.
template <class T, bool kOuterContiguous>
struct OperandSlice {
  static constexpr int kRows = kOuterContiguous ? kMmaSlice : kExpertTile,
                       kColumns = kOuterContiguous ? kExpertTile : kMmaSlice, kStride = kColumns + 8;
  alignas(16) T values[kRows * kStride];

  /// The element of the slice.
  STRATA_HD const T* element(int outer, int inner) const {
    return values + (kOuterContiguous ? inner * kStride + outer : outer * kStride + inner);
  }
};
template <class T, bool kOuterA, bool kOuterB>
struct MmaShared {
  OperandSlice<T, kOuterA> a[2];
  OperandSlice<T, kOuterB> b[2];
};
/// A lane's part of a warp's 32 rows and 64 columns.
struct MmaSums {
  float values[2][8][4];
};

/// Starts loading a slice; what is beyond an extent becomes zero.
template <class T, bool kOuter, class ThreadBlock>
STRATA_DEVICE_INLINE void load_mma_slice(const ThreadBlock& block, OperandSlice<T, kOuter>& into,
                                         const TileOperand<T>& from, std::int64_t first, std::int64_t inner) {
  using Slice = OperandSlice<T, kOuter>;
  const int left = static_cast<int>(inner - first < kMmaSlice ? inner - first : kMmaSlice);
  const int rows = kOuter ? left : from.extent, columns = kOuter ? from.extent : left;
  const std::int64_t ld = kOuter ? from.inner_ld : from.outer_ld;
  const T* const begin = from.at + first * from.inner_ld;
  block.for_each_thread([&](int thread) {
    constexpr int kPerRow = Slice::kColumns / 8, kPieces = Slice::kRows * kPerRow / ThreadBlock::kThreads;
    static_assert(Slice::kRows * kPerRow % ThreadBlock::kThreads == 0);
    unrolled<kPieces>([&](int piece) {
      const int e = thread + piece * ThreadBlock::kThreads, i = e / kPerRow, c = e % kPerRow * 8;
      const bool is_inside = i < rows && c < columns;
      ThreadBlock::cp_async(into.values + i * Slice::kStride + c, is_inside ? begin + i * ld + c : from.at,
                            is_inside);
    });
  });
}

/// Adds the products of a slice to a warp's sums, which begin at (row, column) of the tile. The lanes'
/// addresses follow from the coordinates of fragments in mma.h: matrix j of ldmatrix.x4 is at those of lane 8
/// j.
template <class T, bool kOuterA, bool kOuterB, class Warp, class Sums>
STRATA_DEVICE_INLINE void multiply_slice(const Warp& warp, const OperandSlice<T, kOuterA>& a,
                                         const OperandSlice<T, kOuterB>& b, int row, int column, Sums& sums) {
  const auto lefts = warp.shared_address([&](int lane) {
    const int of_row = lane / 8 % 2 * 8, of_inner = lane / 16 * 8, i = lane % 8;
    return kOuterA ? a.element(row + of_row, of_inner + i) : a.element(row + of_row + i, of_inner);
  });
  const auto rights = warp.shared_address([&](int lane) {
    const int of_column = lane / 16 * 8, of_inner = lane / 8 % 2 * 8, i = lane % 8;
    return kOuterB ? b.element(column + of_column, of_inner + i)
                   : b.element(column + of_column + i, of_inner);
  });
  const auto offset = [](bool outer_contiguous, int stride, int outer, int inner) {
    return outer_contiguous ? inner * stride + outer : outer * stride + inner;
  };
  unrolled<kMmaSlice / 16>([&](int k) {
    typename Warp::template PerLane<Fragment> left[2];
    unrolled<2>([&](int m) {
      warp.template ldmatrix_x4<kOuterA>([&](int lane) { return Warp::at(left[m], lane).values; }, lefts,
                                         offset(kOuterA, OperandSlice<T, kOuterA>::kStride, m * 16, k * 16));
    });
    unrolled<4>([&](int two) {
      typename Warp::template PerLane<Fragment> right;
      warp.template ldmatrix_x4<kOuterB>(
          [&](int lane) { return Warp::at(right, lane).values; }, rights,
          offset(kOuterB, OperandSlice<T, kOuterB>::kStride, two * 16, k * 16));
      unrolled<2, 2>([&](int m, int half) {
        warp.template mma<T>([&](int lane) { return Warp::at(sums, lane).values[m][2 * two + half]; },
                             [&](int lane) { return Warp::at(left[m], lane).values; },
                             [&](int lane) { return Warp::at(right, lane).values + 2 * half; });
      });
    });
  });
}

/// Computes the tile and calls store(row, column, first, second) for pairs of neighbouring elements, also
/// those beyond the extents.
template <class T, bool kOuterA, bool kOuterB, class ThreadBlock, class Store>
STRATA_DEVICE_INLINE void mma_tile(const ThreadBlock& block, MmaShared<T, kOuterA, kOuterB>& shared,
                                   const TileOperand<T>& a, const TileOperand<T>& b, std::int64_t inner,
                                   const Store& store) {
  typename ThreadBlock::template State<MmaSums> state{};
  const auto each_warp = [&](const auto& f) {
    block.for_each_warp(state, [&](const auto& warp, int index, auto& sums) {
      f(warp, index / 2 * 32, index % 2 * 64, sums);
    });
  };
  each_warp([](const auto& warp, int, int, auto& sums) {
    warp.for_each_lane([&](int lane) {
      unrolled<2, 8, 4>([&](int m, int n, int i) { warp.at(sums, lane).values[m][n][i] = 0.0f; });
    });
  });
  const auto load = [&](std::int64_t first, int buffer) {
    if (first < inner) {
      load_mma_slice(block, shared.a[buffer], a, first, inner);
      load_mma_slice(block, shared.b[buffer], b, first, inner);
    }
    block.commit_group();
  };
  load(0, 0);
  int buffer = 0;
  for (std::int64_t first = 0; first < inner; first += kMmaSlice, buffer = 1 - buffer) {
    load(first + kMmaSlice, 1 - buffer);
    block.template wait_group<1>();
    each_warp([&](const auto& warp, int row, int column, auto& sums) {
      multiply_slice(warp, shared.a[buffer], shared.b[buffer], row, column, sums);
    });
    block.sync();  // the next load overwrites what was read
  }
  block.template wait_group<0>();
  each_warp([&](const auto& warp, int row, int column, auto& sums) {
    warp.for_each_lane([&](int lane) {
      unrolled<2, 8, 2>([&](int m, int n, int half) {
        const FragmentCoord at = fragment_coord_c(lane, 2 * half);
        const float* const pair = warp.at(sums, lane).values[m][n] + 2 * half;
        store(row + m * 16 + at.row, column + n * 8 + at.column, pair[0], pair[1]);
      });
    });
  });
}

}  // namespace strata::kernels::detail
