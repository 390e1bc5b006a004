#pragma once

#include <cstdint>

#include <strata/simd/math/host_device.h>
#include <strata/dispatch/cuda/lanes.h>

#include "cuda/attention/attention_math.h"
#include "cuda/mma.h"

/// GEMMs of attention tiles on tensor cores: 16-bit operands in shared memory, f32 accumulators. A tile of
/// scores or probabilities is rounded to the operands' dtype as it is read, as in PyTorch's kernels.
namespace strata::kernels::detail {

/// The part of `rows` x `columns` elements that one of 8 warps computes: 16 rows, and every `step`-th block
/// of 8 columns.
struct WarpTile {
  int row;                          ///< first row
  std::int64_t block, step, count;  ///< first column block, and how many
  STRATA_HD constexpr std::int64_t column(std::int64_t n) const { return (block + n * step) * 8; }
};
STRATA_HD constexpr WarpTile warp_tile(int warp, int rows, std::int64_t columns) {
  const int row_blocks = rows / 16;
  const std::int64_t step = kAttentionThreads / 32 / row_blocks, block = warp / row_blocks;
  return {warp % row_blocks * 16, block, step, (columns / 8 - block + step - 1) / step};
}

#ifdef __CUDACC__
template <class T>
__device__ __forceinline__ unsigned pack_pair(T low, T high) {
  return static_cast<unsigned>(low.bits) | static_cast<unsigned>(high.bits) << 16;
}
/// Loads a lane's fragment of A, 16 x 16 elements that at(row, column) returns.
template <class At>
__device__ __forceinline__ void load_a(unsigned (&a)[4], int lane, const At& at) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const FragmentCoord low = fragment_coord_a(lane, 2 * i), high = fragment_coord_a(lane, 2 * i + 1);
    a[i] = pack_pair(at(low.row, low.column), at(high.row, high.column));
  }
}
template <class At>
__device__ __forceinline__ void load_b(unsigned (&b)[2], int lane, const At& at) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const FragmentCoord low = fragment_coord_b(lane, 2 * i), high = fragment_coord_b(lane, 2 * i + 1);
    b[i] = pack_pair(at(low.row, low.column), at(high.row, high.column));
  }
}
#endif

/// Tensor-core math for head dimensions that are multiples of 16, in tiles of 16, 32 or 64 rows. In the
/// first, scores have fewer blocks of columns than there are warps, some of which wait.
template <class T>
struct MmaMath {
  using Rows = PaddedTile<T, 8>;

  static STRATA_HD constexpr bool supports(std::int64_t d) { return d % 16 == 0; }

  /// As F32Math::load, but eight values at a time: rows of such heads are 32-byte aligned.
  template <int kTile, class ThreadBlock>
  static STRATA_DEVICE_INLINE void load(const ThreadBlock& block, const Rows& tile, const T* head,
                                        std::int64_t ld, std::int64_t first, std::int64_t seq) {
    struct alignas(16) Eight {
      std::uint32_t words[4];
    };
    block.run_and_sync([&](int thread) {
      const int per_row = static_cast<int>(tile.d) / 8;
      for (int e = thread; e < kTile * per_row; e += kAttentionThreads) {
        const int i = e / per_row, c = e % per_row * 8;
        *reinterpret_cast<Eight*>(tile.row(i) + c) =
            first + i < seq ? *reinterpret_cast<const Eight*>(head + (first + i) * ld + c) : Eight{};
      }
    });
  }

#ifdef __CUDACC__
  template <int kTile>
  static __device__ __forceinline__ void gemm_nt(const BlockThreads& block, const Rows& a, const Rows& b,
                                                 const ScoreTile<kTile>& scores) {
    block.run_and_sync([&](int thread) {
      const int lane = thread % 32;
      constexpr int kWarps = kAttentionThreads / 32 / (kTile / 16),
                    kBlocks = (kTile / 8 + kWarps - 1) / kWarps;
      const WarpTile mine = warp_tile(thread / 32, kTile, kTile);
      if (kTile / 8 < kWarps && mine.count == 0) return;
      float c[kBlocks][4] = {};
      for (int k = 0; k < a.d; k += 16) {
        unsigned left[4];
        load_a(left, lane, [&](int row, int column) { return a.row(mine.row + row)[k + column]; });
#pragma unroll
        for (int n = 0; n < kBlocks; ++n) {
          unsigned right[2];
          const int first = static_cast<int>(mine.column(n));
          load_b(right, lane, [&](int row, int column) { return b.row(first + column)[k + row]; });
          mma<T>(c[n], left, right);
        }
      }
#pragma unroll
      for (int n = 0; n < kBlocks; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const FragmentCoord at = fragment_coord_c(lane, i);
          scores(mine.row + at.row, static_cast<int>(mine.column(n)) + at.column) = c[n][i];
        }
    });
  }

  template <int kTile, bool kTransposed>
  static __device__ __forceinline__ void gemm_accumulate(const BlockThreads& block,
                                                         const ScoreTile<kTile>& scores, const Rows& from,
                                                         const F32Tile& to, const float* rescale) {
    block.run_and_sync([&](int thread) {
      const int lane = thread % 32;
      const WarpTile mine = warp_tile(thread / 32, kTile, to.d);
      unsigned left[kTile / 16][4];
#pragma unroll
      for (int k = 0; k < kTile / 16; ++k)
        load_a(left[k], lane, [&](int row, int column) {
          const int i = mine.row + row, j = k * 16 + column;
          return from_f32<T>(kTransposed ? scores(j, i) : scores(i, j));
        });
      for (std::int64_t n = 0; n < mine.count; ++n) {
        const std::int64_t first = mine.column(n);
        float c[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const FragmentCoord at = fragment_coord_c(lane, i);
          const float before = to.row(mine.row + at.row)[first + at.column];
          c[i] = rescale != nullptr ? before * rescale[mine.row + at.row] : before;
        }
#pragma unroll
        for (int k = 0; k < kTile / 16; ++k) {
          unsigned right[2];
          load_b(right, lane, [&](int row, int column) { return from.row(k * 16 + row)[first + column]; });
          mma<T>(c, left[k], right);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const FragmentCoord at = fragment_coord_c(lane, i);
          to.row(mine.row + at.row)[first + at.column] = c[i];
        }
      }
    });
  }
#endif
};

}  // namespace strata::kernels::detail
