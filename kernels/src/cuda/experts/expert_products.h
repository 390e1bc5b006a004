#pragma once

#include <strata/runtime/float16.h>

#include "cuda/experts/expert_fma.h"
#include "cuda/experts/expert_mma.h"

/// The tiles of the three products of experts' linear layers, for a thread block of kExpertWarps warps.
/// `kTensorCores` is for 16-bit operands that expert_mma.h has.
namespace strata::kernels::detail {

/// out[r] = in[r] op(w[e]) + bias[e], where w is [columns, inner], or [inner, columns] for an input gradient.
template <class T>
struct ExpertRowProduct {
  ExpertOffsets offsets;
  const T *in, *w, *bias;  ///< `bias` may be null
  T* out;
  std::int64_t inner, columns;
};

template <class T, bool kTensorCores, bool kOuterA, bool kOuterB>
struct ProductShared {
  MmaShared<T, kOuterA, kOuterB> memory;
};
template <class T, bool kOuterA, bool kOuterB>
struct ProductShared<T, false, kOuterA, kOuterB> {
  FmaShared memory;
};

/// Calls store(row, column, sum) for the elements of the tile.
template <class T, bool kTensorCores, bool kOuterA, bool kOuterB, class ThreadBlock, class Store>
STRATA_DEVICE_INLINE void product_tile(const ThreadBlock& block,
                                       ProductShared<T, kTensorCores, kOuterA, kOuterB>& shared,
                                       const TileOperand<T>& a, const TileOperand<T>& b, std::int64_t inner,
                                       const Store& store) {
  if constexpr (kTensorCores)
    mma_tile(block, shared.memory, a, b, inner, [&](int row, int column, float first, float second) {
      store(row, column, first);
      store(row, column + 1, second);
    });
  else
    fma_tile(block, shared.memory, a, b, inner, store);
}

/// The extent of a tile that begins at `first`.
STRATA_HD int tile_extent(std::int64_t first, std::int64_t extent) {
  return static_cast<int>(extent - first < kExpertTile ? extent - first : kExpertTile);
}

template <class T, bool kTensorCores, bool kForward, class ThreadBlock>
STRATA_DEVICE_INLINE void expert_row_tile(const ThreadBlock& block,
                                          ProductShared<T, kTensorCores, false, !kForward>& shared,
                                          const ExpertRowProduct<T>& p, std::int64_t number,
                                          std::int64_t first_column) {
  const ExpertTileRows tile = expert_tile(p.offsets, number);
  if (tile.count == 0) return;
  const T* const w = p.w + tile.expert * p.inner * p.columns;
  const int columns = tile_extent(first_column, p.columns);
  const TileOperand<T> a = {p.in + tile.row * p.inner, p.inner, 1, tile.count};
  const TileOperand<T> b = kForward ? TileOperand<T>{w + first_column * p.inner, p.inner, 1, columns}
                                    : TileOperand<T>{w + first_column, 1, p.columns, columns};
  T* const out = p.out + tile.row * p.columns + first_column;
  const T* const bias = p.bias != nullptr ? p.bias + tile.expert * p.columns + first_column : nullptr;
  product_tile<T, kTensorCores, false, !kForward>(
      block, shared, a, b, p.inner, [&](int row, int column, float sum) {
        if (row >= tile.count || column >= columns) return;
        out[row * p.columns + column] = from_f32<T>(bias != nullptr ? sum + to_f32(bias[column]) : sum);
      });
}

/// dw[e] (+)= the sum of dy[r]^T x[r] over the rows of e, in order.
template <class T, class Out>
struct ExpertWeightGradient {
  ExpertOffsets offsets;
  const T *dy, *x;
  Out* dw;
  std::int64_t n, k;
  bool accumulate;
};

template <class T, bool kTensorCores, class Out, class ThreadBlock>
STRATA_DEVICE_INLINE void expert_weight_tile(const ThreadBlock& block,
                                             ProductShared<T, kTensorCores, true, true>& shared,
                                             const ExpertWeightGradient<T, Out>& p, std::int64_t expert,
                                             std::int64_t first_row, std::int64_t first_column) {
  const std::int64_t begin = p.offsets.begin(expert), end = p.offsets.begin(expert + 1);
  const int rows = tile_extent(first_row, p.n), columns = tile_extent(first_column, p.k);
  Out* const dw = p.dw + (expert * p.n + first_row) * p.k + first_column;
  product_tile<T, kTensorCores, true, true>(block, shared, {p.dy + begin * p.n + first_row, 1, p.n, rows},
                                            {p.x + begin * p.k + first_column, 1, p.k, columns}, end - begin,
                                            [&](int row, int column, float sum) {
                                              if (row >= rows || column >= columns) return;
                                              Out& into = dw[row * p.k + column];
                                              into = from_f32<Out>(p.accumulate ? to_f32(into) + sum : sum);
                                            });
}

/// The sum of one column over an expert's rows, panel by panel of 64 rows, whose sums are added: the host's
/// order, hence its bits.
template <class T>
STRATA_HD float expert_bias_sum(const T* dy, std::int64_t begin, std::int64_t end, std::int64_t n,
                                std::int64_t column) {
  constexpr std::int64_t kPanel = 64;
  float total = 0.0f;
  for (std::int64_t panel = begin; panel < end; panel += kPanel) {
    const std::int64_t stop = panel + kPanel < end ? panel + kPanel : end;
    float sum = 0.0f;
    for (std::int64_t r = panel; r < stop; ++r) sum = sum + to_f32(dy[r * n + column]);
    total = total + sum;
  }
  return total;
}

}  // namespace strata::kernels::detail
