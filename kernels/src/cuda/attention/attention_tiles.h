#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <strata/simd/math/host_device.h>
#include <strata/dispatch/cuda/lanes.h>
#include <strata/runtime/float16.h>

#include "cuda/thread_block.h"

/// Shared-memory layouts of attention tiles, and how a thread block (thread_block.h) multiplies tiles in f32.
namespace strata::kernels::detail {

inline constexpr int kAttentionThreads = 256;

/// Rows of a head in shared memory, padded so that the elements of a column fall into many banks.
template <class V, int kPad>
struct PaddedTile {
  V* at;
  std::int64_t d;
  STRATA_HD std::int64_t stride() const { return d + kPad; }
  STRATA_HD V* row(int i) const { return at + i * stride(); }
};
/// A tile of f32 values: accumulators, and the operands of F32Math.
using F32Tile = PaddedTile<float, 1>;

/// Scores or probabilities of a tile of queries by a tile of keys. Rows are padded so that eight consecutive
/// rows fall into different banks.
template <int kTile>
struct ScoreTile {
  static constexpr int kStride = kTile + 4;
  float* at;
  STRATA_HD float& operator()(int i, int j) const { return at[i * kStride + j]; }
};

/// Hands out pieces of a block's shared memory. Over null it only computes how many bytes are needed.
class SharedMemoryArena {
 public:
  STRATA_HD explicit SharedMemoryArena(std::byte* begin) : at_(begin) {}
  template <class V>
  STRATA_HD V* allocate(std::int64_t n) {
    V* const piece = reinterpret_cast<V*>(at_ + bytes_);
    bytes_ += (n * static_cast<std::int64_t>(sizeof(V)) + 15) / 16 * 16;
    return piece;
  }
  template <int kTile, class Rows>
  STRATA_HD Rows rows(std::int64_t d) {
    Rows tile{nullptr, d};
    tile.at = allocate<std::remove_reference_t<decltype(*tile.at)>>(kTile * tile.stride());
    return tile;
  }
  template <int kTile>
  STRATA_HD ScoreTile<kTile> score_tile() {
    return {allocate<float>(kTile * ScoreTile<kTile>::kStride)};
  }
  STRATA_HD std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* at_;
  std::int64_t bytes_ = 0;
};

/// Calls f(i, c) for the thread's elements of a tile: a warp handles whole rows, its lanes consecutive
/// columns.
template <int kTile, class F>
STRATA_DEVICE_INLINE void for_each_tile_element(int thread, std::int64_t d, const F& f) {
  for (int i = thread / 32; i < kTile; i += kAttentionThreads / 32)
    for (std::int64_t c = thread % 32; c < d; c += 32) f(i, c);
}

struct F32Math {
  using Rows = F32Tile;

  /// Loads rows [first, first + kTile) of a head; rows past the end of the sequence are zero.
  template <int kTile, class ThreadBlock, class T>
  static STRATA_DEVICE_INLINE void load(const ThreadBlock& block, const Rows& tile, const T* head,
                                        std::int64_t ld, std::int64_t first, std::int64_t seq) {
    block.run_and_sync([&](int thread) {
      for_each_tile_element<kTile>(thread, tile.d, [&](int i, std::int64_t c) {
        tile.row(i)[c] = first + i < seq ? to_f32(head[(first + i) * ld + c]) : 0.0f;
      });
    });
  }
  /// scores[i, j] = a[i] . b[j].
  template <int kTile, class ThreadBlock>
  static STRATA_DEVICE_INLINE void gemm_nt(const ThreadBlock& block, const Rows& a, const Rows& b,
                                           const ScoreTile<kTile>& scores) {
    block.run_and_sync([&](int thread) {
      for (int e = thread; e < kTile * kTile; e += kAttentionThreads) {
        const float *x = a.row(e / kTile), *y = b.row(e % kTile);
        float sum = 0.0f;
        for (std::int64_t c = 0; c < a.d; ++c) sum = sum + x[c] * y[c];
        scores(e / kTile, e % kTile) = sum;
      }
    });
  }
  /// to[i] = to[i] * rescale[i] (if not null) + sum over j of scores[i, j] (scores[j, i] if kTransposed) *
  /// from[j].
  template <int kTile, bool kTransposed, class ThreadBlock>
  static STRATA_DEVICE_INLINE void gemm_accumulate(const ThreadBlock& block, const ScoreTile<kTile>& scores,
                                                   const Rows& from, const F32Tile& to,
                                                   const float* rescale) {
    block.run_and_sync([&](int thread) {
      for_each_tile_element<kTile>(thread, to.d, [&](int i, std::int64_t c) {
        float sum = 0.0f;
        for (int j = 0; j < kTile; ++j)
          sum = sum + (kTransposed ? scores(j, i) : scores(i, j)) * from.row(j)[c];
        to.row(i)[c] = (rescale != nullptr ? to.row(i)[c] * rescale[i] : to.row(i)[c]) + sum;
      });
    });
  }
};

template <int kTile, class ThreadBlock>
STRATA_DEVICE_INLINE void clear_tile(const ThreadBlock& block, const F32Tile& tile) {
  block.run_and_sync([&](int thread) {
    for (std::int64_t e = thread; e < kTile * tile.stride(); e += kAttentionThreads) tile.at[e] = 0.0f;
  });
}

}  // namespace strata::kernels::detail
