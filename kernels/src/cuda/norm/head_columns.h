#pragma once

#include <cstdint>

#include <strata/dispatch/cuda/packs.h>

#include "cuda/norm/norm_columns.h"
#include "cuda/warps.h"

/// Sums of a head's columns over heads and rows, in the order of norm_columns.h. A head has few columns, so
/// few threads add, each of them thousands of values in turn: the block copies the heads ahead of them to
/// shared memory, 16 bytes a thread, for only that many loads at once occupy the memory.
namespace strata::kernels::detail {

inline constexpr int kHeadWarps = 4, kHeadColumns = kHeadWarps * 32;  ///< a thread adds up one column
template <class T>
struct HeadStage {
  static constexpr int kHeads = 16, kTiles = 16 / static_cast<int>(sizeof(T)) / 2 + 1;  // 40 or 48 KiB
  struct Tile {
    alignas(16) T x[kHeads * kHeadColumns], dy[kHeads * kHeadColumns];
  };
  Tile tiles[kTiles];
};

/// Whether the heads are staged: several a row, aligned to packs, and fewer than 2^31 in a block of rows.
template <class T>
constexpr bool stages_heads(const HeadGroup& heads, std::int64_t rows_of_block) {
  constexpr std::int64_t kSize = dispatch::Pack<T>::kSize, kMax = std::int64_t{1} << 31;
  return heads.count > 1 && heads.d % kSize == 0 && heads.width % kSize == 0 &&
         heads.count * rows_of_block < kMax;
}

/// The columns from `column` on, of the rows from `first` to `end`.
template <class ThreadBlock, class T, class Sums>
STRATA_DEVICE_INLINE void rmsnorm_head_columns(const ThreadBlock& block, const T* x, const float* rstd,
                                               const T* dy, const HeadGroup& heads, int column,
                                               std::int64_t first, std::int64_t end, float* sums_of_block,
                                               HeadStage<T>& stage, Sums& sums) {
  using Stage = HeadStage<T>;
  constexpr int kPack = dispatch::Pack<T>::kSize, kPerHead = kHeadColumns / kPack;
  const auto count = static_cast<int>(heads.count), all = static_cast<int>(end - first) * count,
             columns = static_cast<int>(heads.d) - column < kHeadColumns ? static_cast<int>(heads.d) - column
                                                                         : kHeadColumns,
             tiles = (all + Stage::kHeads - 1) / Stage::kHeads;
  const auto copy_tile = [&](int number) {
    auto& tile = stage.tiles[number % Stage::kTiles];
    block.for_each_thread([&](int thread) {
      for (int i = thread; i < Stage::kHeads * kPerHead; i += kHeadColumns) {
        const int head = number * Stage::kHeads + i / kPerHead, at = i % kPerHead * kPack;
        if (head >= all || at >= columns) continue;
        const std::int64_t from =
            (first + head / count) * heads.width + heads.at + head % count * heads.d + column + at;
        const int into = i / kPerHead * kHeadColumns + at;
        ThreadBlock::cp_async(tile.x + into, x + from, true);
        ThreadBlock::cp_async(tile.dy + into, dy + from, true);
      }
    });
    block.commit_group();
  };
  block.for_each_thread([&](int thread) { ThreadBlock::own(sums, thread) = 0.0f; });
  for (int ahead = 0; ahead + 1 < Stage::kTiles; ++ahead) copy_tile(ahead);
  for (int number = 0; number < tiles; ++number) {
    copy_tile(number + Stage::kTiles - 1);
    block.template wait_group<Stage::kTiles - 1>();
    const auto& tile = stage.tiles[number % Stage::kTiles];
    const int begin = number * Stage::kHeads,
              length = all - begin < Stage::kHeads ? all - begin : Stage::kHeads;
    block.for_each_thread([&](int thread) {
      if (thread >= columns) return;
      float sum = ThreadBlock::own(sums, thread);
      unrolled<Stage::kHeads>([&](int i) {
        if (i >= length) return;
        const int head = begin + i, at = i * kHeadColumns + thread;
        const float scale = rstd[(first + head / count) * heads.stats + heads.first + head % count];
        add_to_column(sum, to_f32(tile.x[at]), to_f32(tile.dy[at]), scale);
      });
      ThreadBlock::own(sums, thread) = sum;
    });
    block.sync();  // the tile has been read
  }
  block.template wait_group<0>();
  block.for_each_thread([&](int thread) {
    if (thread < columns) sums_of_block[column + thread] = ThreadBlock::own(sums, thread);
  });
}

#ifdef __CUDACC__
struct HeadColumnsBlock : BlockWarps<kHeadWarps> {
  static __device__ __forceinline__ float& own(float& sum, int) { return sum; }
};
#endif

}  // namespace strata::kernels::detail
