#pragma once

#include <cstddef>
#include <cstdint>

#include <strata/simd/math/elementary.h>
#include <strata/simd/math/host_device.h>
#include <strata/dispatch/cuda/lanes.h>

#include "cuda/attention/flash_tiles.h"

namespace strata::kernels::detail {

/// Forward of a tile of queries of one head: computes outputs and lse.
template <class T, int kD, int kM, class Policy = MmaPolicy>
struct FlashForward {
  static constexpr int kRows = Policy::kWarps * 16 * kM, kKeys = Policy::forward_inner_tile(kD);
  using QueryRows = typename Policy::template Rows<T, kD, kRows>;
  using KeyRows = typename Policy::template Rows<T, kD, kKeys>;

  struct SharedStorage {
    STRATA_HD explicit SharedStorage(std::byte* shared)
        : arena(shared), q{allocate(kRows)}, k{allocate(kKeys)}, values{allocate(kKeys)} {}
    STRATA_HD T* allocate(int rows) { return arena.allocate<T>(rows * KeyRows::kStride); }
    SharedMemoryArena arena;
    QueryRows q;
    KeyRows k, values;
  };
  /// The registers of a lane, which has rows lane / 4 and lane / 4 + 8 of each 16.
  struct LaneRegisters {
    float o[kM][kD / 8][4], s[kM][kKeys / 8][4];
    float row_max[kM][2], new_max[kM][2], row_sum[kM][2];  ///< row_sum: of the lane's own columns
    int begin[kM][2];
  };

  template <class ThreadBlock>
  static STRATA_DEVICE_INLINE void run(const ThreadBlock& block, std::byte* shared, const AttentionView<T>& v,
                                       std::int64_t batch, std::int64_t head, std::int64_t first, float slope,
                                       T* out, float* lse) {
    const std::int64_t kv = head / (v.heads / v.kv_heads);
    const HeadColumns<T> keys = key_head(v, batch, kv), values = value_head(v, batch, kv);
    const SharedStorage m(shared);
    const KeyTileRange tiles = visible_key_tiles<kRows, kKeys>(v, batch, first);
    const float scale = v.scale * kLog2E, bias = slope * kLog2E;
    typename ThreadBlock::template State<LaneRegisters> state;

    load_tile_async<kRows>(block, m.q, query_head(v, batch, head), first);
    load_tile_async<kKeys>(block, m.k, keys, tiles.begin);
    block.commit_group();
    block.for_each_warp(state, [&](const auto& warp, int index, auto& lanes) {
      warp.for_each_lane(
          [&](int lane) { start(warp.at(lanes, lane), v, batch, row_of(first, index, lane)); });
    });
    for (int tile = 0; tile < tiles.count; ++tile) {
      const std::int64_t key = tiles.begin + tile * std::int64_t{kKeys};
      // Whether all queries of the warps that multiply together come before these keys.
      const auto is_fully_masked = [&](int index) {
        return v.causal && key >= first + mma_row_end<Policy, kM>(index);
      };
      block.template wait_group<0>();  // the keys have arrived, and no warp still reads the previous values
      load_tile_async<kKeys>(block, m.values, values, key);
      block.commit_group();
      block.for_each_warp(state, [&](const auto& warp, int index, auto& lanes) {
        if (is_fully_masked(index)) return;
        gemm_ss<kM, kKeys / 8>(warp, m.q, index * 16 * kM, m.k,
                               [&](int lane, int i, int n) { return warp.at(lanes, lane).s[i][n]; });
      });
      block.template wait_group<0>();  // the values have arrived, and no warp still reads the keys
      if (tile + 1 < tiles.count) load_tile_async<kKeys>(block, m.k, keys, key + kKeys);
      block.commit_group();
      block.for_each_warp(state, [&](const auto& warp, int index, auto& lanes) {
        if (is_fully_masked(index)) return;
        warp.for_each_lane([&](int lane) {
          scores(warp.at(lanes, lane), v, static_cast<int>(key) + lane % 4 * 2,
                 static_cast<int>(row_of(first, index, lane)), scale, bias);
        });
        unrolled<2 * kM>([&](int i) {
          warp.quad_reduce([&](int lane) -> float& { return warp.at(lanes, lane).new_max[i / 2][i % 2]; },
                           [](float a, float b) { return a > b ? a : b; });
        });
        warp.for_each_lane([&](int lane) { probabilities(warp.at(lanes, lane)); });
        gemm_rs<kM, kKeys / 16>(
            warp, [&](int lane, int i, int n) { return warp.at(lanes, lane).s[i][n]; }, m.values,
            [&](int lane, int i, int n) { return warp.at(lanes, lane).o[i][n]; });
      });
    }
    block.for_each_warp(state, [&](const auto& warp, int index, auto& lanes) {
      unrolled<2 * kM>([&](int i) {
        warp.quad_reduce([&](int lane) -> float& { return warp.at(lanes, lane).row_sum[i / 2][i % 2]; },
                         [](float a, float b) { return a + b; });
      });
      warp.for_each_lane([&](int lane) {
        finish(warp.at(lanes, lane), v, batch, head, row_of(first, index, lane), lane % 4 * 2, out, lse);
      });
    });
  }

 private:
  static STRATA_HD std::int64_t row_of(std::int64_t first, int warp, int lane) {
    return first + warp * 16 * kM + lane / 4;
  }

  static STRATA_DEVICE_INLINE void start(LaneRegisters& r, const AttentionView<T>& v, std::int64_t batch,
                                         std::int64_t row) {
    unrolled<kM, 2>([&](int m, int half) {
      r.row_max[m][half] = kLowestScore;
      r.row_sum[m][half] = 0.0f;
      r.begin[m][half] = first_visible_key(v, batch, row + m * 16 + half * 8);
    });
    unrolled<kM, kD / 8, 4>([&](int m, int n, int i) { r.o[m][n][i] = 0.0f; });
  }
  /// Scales the scores, sets masked ones to minus infinity, and updates the running maximum of each row.
  static STRATA_DEVICE_INLINE void scores(LaneRegisters& r, const AttentionView<T>& v, int key, int row,
                                          float scale, float bias) {
    unrolled<kM, 2>([&](int m, int half) {
      const int query = row + m * 16 + half * 8;
      float new_max = r.row_max[m][half];
      unrolled<kKeys / 8, 2>([&](int n, int e) {
        const int j = key + n * 8 + e;
        float& s = r.s[m][n][half * 2 + e];
        s = s * scale;
        if (bias != 0.0f) s = s + bias * static_cast<float>(j - query);
        if (!is_visible(v, r.begin[m][half], query, j)) s = -INFINITY;
        new_max = s > new_max ? s : new_max;
      });
      r.new_max[m][half] = new_max;
    });
  }
  static STRATA_DEVICE_INLINE void probabilities(LaneRegisters& r) {
    unrolled<kM, 2>([&](int m, int half) {
      const float new_max = r.new_max[m][half], rescale = exp2_approx(r.row_max[m][half] - new_max);
      float sum = 0.0f;
      unrolled<kKeys / 8, 2>([&](int n, int e) {
        float& s = r.s[m][n][half * 2 + e];
        s = exp2_approx(s - new_max);
        sum = sum + s;
      });
      r.row_sum[m][half] = r.row_sum[m][half] * rescale + sum;
      r.row_max[m][half] = new_max;
      unrolled<kD / 8, 2>([&](int n, int e) { r.o[m][n][half * 2 + e] = r.o[m][n][half * 2 + e] * rescale; });
    });
  }
  static STRATA_DEVICE_INLINE void finish(const LaneRegisters& r, const AttentionView<T>& v,
                                          std::int64_t batch, std::int64_t head, std::int64_t row, int column,
                                          T* out, float* lse) {
    unrolled<kM, 2>([&](int m, int half) {
      const std::int64_t query = row + m * 16 + half * 8;
      if (query >= v.seq) return;
      const float row_sum = r.row_sum[m][half];
      T* const to = out + v.out(batch, head) + query * v.heads * v.d + column;
      unrolled<kD / 8>([&](int n) {
        store_pair(to + n * 8, r.o[m][n][half * 2] / row_sum, r.o[m][n][half * 2 + 1] / row_sum);
      });
      if (column == 0)
        lse[v.stat(batch, head) + query] =
            static_cast<float>(static_cast<double>(r.row_max[m][half]) * 0.69314718055994531 +
                               simd::log_of(static_cast<double>(row_sum)));
    });
  }
};

}  // namespace strata::kernels::detail
