#pragma once

#include <strata/runtime/float16.h>

#include "cuda/experts/expert_tiles.h"
#include "cuda/warps.h"

/// A tile of a product by fused multiply-adds in f32, for f32 operands and for shapes that expert_mma.h does
/// not have. Each element is one sum in order.
namespace strata::kernels::detail {

inline constexpr int kExpertWarps = 8, kFmaSlice = 16;

/// The operands of a slice of the inner extent. A row is padded, so that threads that store a column of it
/// use different banks.
struct FmaShared {
  float a[kFmaSlice][kExpertTile + 4], b[kFmaSlice][kExpertTile + 4];
};
/// A thread's part of the tile: eight rows and eight columns.
struct FmaSums {
  float values[8][8];
};

template <class T, class ThreadBlock>
STRATA_DEVICE_INLINE void load_fma_slice(const ThreadBlock& block, float (*into)[kExpertTile + 4],
                                         const TileOperand<T>& from, std::int64_t first, std::int64_t inner) {
  block.for_each_thread([&](int thread) {
    const bool along_inner = from.inner_ld == 1;  // neighbouring threads read neighbouring elements
    for (int e = thread; e < kFmaSlice * kExpertTile; e += ThreadBlock::kThreads) {
      const int i = along_inner ? e % kFmaSlice : e / kExpertTile,
                outer = along_inner ? e / kFmaSlice : e % kExpertTile;
      const bool is_inside = outer < from.extent && first + i < inner;
      into[i][outer] =
          is_inside ? to_f32(from.at[outer * from.outer_ld + (first + i) * from.inner_ld]) : 0.0f;
    }
  });
}

/// Computes the tile and calls store(row, column, sum) for all its elements, also those beyond the extents.
template <class T, class ThreadBlock, class Store>
STRATA_DEVICE_INLINE void fma_tile(const ThreadBlock& block, FmaShared& shared, const TileOperand<T>& a,
                                   const TileOperand<T>& b, std::int64_t inner, const Store& store) {
  typename ThreadBlock::template State<FmaSums> state{};
  const auto each_thread = [&](const auto& f) {
    block.for_each_warp(state, [&](const auto& warp, int index, auto& sums) {
      warp.for_each_lane([&](int lane) { f(index * 32 + lane, warp.at(sums, lane).values); });
    });
  };
  each_thread([&](int, auto& sums) { unrolled<8, 8>([&](int i, int j) { sums[i][j] = 0.0f; }); });
  for (std::int64_t first = 0; first < inner; first += kFmaSlice) {
    load_fma_slice(block, shared.a, a, first, inner);
    load_fma_slice(block, shared.b, b, first, inner);
    block.sync();
    each_thread([&](int thread, auto& sums) {
      const int row = thread / 16 * 8, column = thread % 16 * 8;
      const int n = static_cast<int>(inner - first < kFmaSlice ? inner - first : kFmaSlice);
      for (int k = 0; k < n; ++k) {
        float left[8], right[8];
        unrolled<8>([&](int i) {
          left[i] = shared.a[k][row + i];
          right[i] = shared.b[k][column + i];
        });
        unrolled<8, 8>([&](int i, int j) { sums[i][j] = fused_multiply_add(left[i], right[j], sums[i][j]); });
      }
    });
    block.sync();
  }
  each_thread([&](int thread, auto& sums) {
    unrolled<8, 8>([&](int i, int j) { store(thread / 16 * 8 + i, thread % 16 * 8 + j, sums[i][j]); });
  });
}

}  // namespace strata::kernels::detail
