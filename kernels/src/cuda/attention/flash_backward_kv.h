#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

#include <strata/simd/math/host_device.h>
#include <strata/dispatch/cuda/lanes.h>

#include "cuda/attention/flash_tiles.h"

namespace strata::kernels::detail {

/// Backward of a tile of keys of one key head: computes dk and dv, looping over the query heads of its group
/// and the queries that see the tile. Scores are transposed: a warp has 16 keys as rows, and queries are
/// columns.
template <class T, int kD, class Policy = MmaPolicy>
struct FlashBackwardKV {
  static constexpr int kRows = Policy::kWarps * 16, kQueries = Policy::backward_inner_tile(kD);
  using KeyRows = typename Policy::template Rows<T, kD, kRows>;
  using QueryRows = typename Policy::template Rows<T, kD, kQueries>;

  /// A stage of the pipeline holds a tile of queries. There are two, for the current tile and the next.
  struct Stage {
    QueryRows q, dout;
    float *lse, *row_delta;
    int* begin;  ///< the first key that each query sees; INT_MAX past the sequence
  };
  struct SharedStorage {
    STRATA_HD explicit SharedStorage(std::byte* shared)
        : arena(shared),
          k{allocate(kRows)},
          values{allocate(kRows)},
          queries(allocate(4 * kQueries)),
          stats(arena.allocate<float>(4 * kQueries)),
          begins(arena.allocate<int>(2 * kQueries)) {}
    STRATA_HD T* allocate(int rows) { return arena.allocate<T>(rows * KeyRows::kStride); }
    STRATA_HD Stage stage(int i) const {
      return {{queries + i * 2 * kQueries * QueryRows::kStride},
              {queries + (i * 2 + 1) * kQueries * QueryRows::kStride},
              stats + i * 2 * kQueries,
              stats + (i * 2 + 1) * kQueries,
              begins + i * kQueries};
    }
    SharedMemoryArena arena;
    KeyRows k, values;
    T* queries;
    float* stats;
    int* begins;
  };
  struct LaneRegisters {
    float dk[1][kD / 8][4], dv[1][kD / 8][4], p[1][kQueries / 8][4], dp[1][kQueries / 8][4];
  };

  template <class ThreadBlock, class Slope>
  static STRATA_DEVICE_INLINE void run(const ThreadBlock& block, std::byte* shared, const AttentionView<T>& v,
                                       std::int64_t batch, std::int64_t kv, std::int64_t key,
                                       const Slope& slope_of, const float* lse, const T* dout,
                                       const float* delta, T* dqkv) {
    const std::int64_t first = v.causal ? key : 0;
    const int group = static_cast<int>(v.heads / v.kv_heads);
    const SharedStorage m(shared);
    const int count = query_tiles(v, batch, key, first), steps = group * count;
    const float scale = v.scale * kLog2E;
    typename ThreadBlock::template State<LaneRegisters> state;
    const auto fetch = [&](std::int64_t head, int tile, int stage) {
      const std::int64_t at = opaque(batch), query = first + tile * kQueries;
      const Stage to = m.stage(stage);
      load_tile_async<kQueries>(block, to.q, query_head(v, at, head), query);
      load_tile_async<kQueries>(block, to.dout, dout_head(v, dout, at, head), query);
      block.for_each_thread([&](int i) {
        if (i >= kQueries) return;
        const bool valid = query + i < v.seq;
        const std::int64_t stat = v.stat(at, head) + query + i;
        to.lse[i] = valid ? lse[stat] * kLog2E : 0.0f;
        to.row_delta[i] = valid ? delta[stat] : 0.0f;
        to.begin[i] = valid ? first_visible_key(v, at, static_cast<int>(query) + i) : INT_MAX;
      });
    };

    load_tile_async<kRows>(block, m.k, key_head(v, batch, kv), key);
    load_tile_async<kRows>(block, m.values, value_head(v, batch, kv), key);
    if (steps > 0) fetch(kv * group, 0, 0);
    block.commit_group();
    block.for_each_warp(state, [&](const auto& warp, int, auto& lanes) {
      warp.for_each_lane([&](int lane) { start(warp.at(lanes, lane)); });
    });
    int head = static_cast<int>(kv * group), tile = 0;
    for (int step = 0; step < steps; ++step) {
      const int query = static_cast<int>(first) + tile * kQueries;
      const float bias = slope_of(head) * kLog2E;
      const Stage now = m.stage(step % 2);
      if (++tile == count) {
        tile = 0;
        ++head;
      }
      if (step + 1 < steps) fetch(head, tile, (step + 1) % 2);
      block.commit_group();
      block.template wait_group<1>();
      block.for_each_warp(state, [&](const auto& warp, int index, auto& lanes) {
        // All of these queries come before the keys of the warps that multiply together.
        if (v.causal && query + kQueries <= key + mma_row_begin<Policy, 1>(index)) return;
        const auto p = [&](int lane, int i, int n) { return warp.at(lanes, lane).p[i][n]; };
        const auto dp = [&](int lane, int i, int n) { return warp.at(lanes, lane).dp[i][n]; };
        start_gemm_ss<kQueries / 8>(warp, m.k, index * 16, now.q, p);
        start_gemm_ss<kQueries / 8>(warp, m.values, index * 16, now.dout, dp);
        Policy::template finish<1, kQueries / 8>(warp, p);  // the exponentials are computed beside dp
        // The last query sees the fewest of the first keys; past the sequence it sees none.
        const bool is_masked = !is_interior(v, now.begin[kQueries - 1], query,
                                            static_cast<int>(key) + mma_row_begin<Policy, 1>(index),
                                            static_cast<int>(key) + mma_row_end<Policy, 1>(index));
        warp.on_scores(
            {query, kQueries, key + mma_row_begin<Policy, 1>(index), mma_rows<Policy, 1>(), is_masked});
        warp.for_each_lane([&](int lane) {
          probabilities(warp.at(lanes, lane), v, now, query, lane % 4 * 2,
                        static_cast<int>(key) + index * 16 + lane / 4, scale, bias, is_masked);
        });
        Policy::template hold<kQueries / 8>(warp, p);
        Policy::template finish<0, kQueries / 8>(warp, dp);
        gemm_rs<1, kQueries / 16>(warp, p, now.dout,
                                  [&](int lane, int i, int n) { return warp.at(lanes, lane).dv[i][n]; });
        warp.for_each_lane([&](int lane) { gradients(warp.at(lanes, lane), now, lane % 4 * 2, v.scale); });
        gemm_rs<1, kQueries / 16>(warp, dp, now.q,
                                  [&](int lane, int i, int n) { return warp.at(lanes, lane).dk[i][n]; });
      });
      ThreadBlock::sync();  // all warps are done with this stage before it is refilled
    }
    block.for_each_warp(state, [&](const auto& warp, int index, auto& lanes) {
      warp.for_each_lane([&](int lane) {
        finish(warp.at(lanes, lane), v, batch, kv, key + index * 16 + lane / 4, lane % 4 * 2, dqkv);
      });
    });
  }

 private:
  /// The number of query tiles to visit. If a document or a window begins after these keys, no query from
  /// there on sees them.
  static STRATA_DEVICE_INLINE int query_tiles(const AttentionView<T>& v, std::int64_t batch, std::int64_t key,
                                              std::int64_t first) {
    int low = 0, high = static_cast<int>((v.seq - first + kQueries - 1) /
                                         kQueries);  // the first fully masked tile is in [low, high]
    if (v.doc_start == nullptr && v.window == 0) return high;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (first_visible_key(v, batch, static_cast<int>(first) + middle * kQueries) >= key + kRows)
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }
  static STRATA_DEVICE_INLINE void start(LaneRegisters& r) {
    unrolled<kD / 8, 4>([&](int n, int i) { r.dk[0][n][i] = r.dv[0][n][i] = 0.0f; });
  }
  static STRATA_DEVICE_INLINE void probabilities(LaneRegisters& r, const AttentionView<T>& v,
                                                 const Stage& stage, int query, int column, int row,
                                                 float scale, float bias, bool is_masked) {
    const auto for_each_score = [&](const auto& f) {
      unrolled<kQueries / 8, 2, 2>(
          [&](int n, int e, int half) { f(r.p[0][n][half * 2 + e], n * 8 + column + e, row + half * 8); });
    };
    for_each_score([&](float& p, int i, int) { p = fused_multiply_add(p, scale, -stage.lse[i]); });
    if (bias != 0.0f)
      for_each_score([&](float& p, int i, int j) { p = p + bias * static_cast<float>(j - (query + i)); });
    for_each_score([&](float& p, int, int) { p = exp2_approx(p); });
    if (is_masked)
      for_each_score([&](float& p, int i, int j) {  // keys past the end are not stored
        if (j < stage.begin[i] || (v.causal && j > query + i)) p = 0.0f;
      });
  }
  /// Turns dp into the gradients of the scores.
  static STRATA_DEVICE_INLINE void gradients(LaneRegisters& r, const Stage& stage, int column, float scale) {
    unrolled<kQueries / 8, 2>([&](int n, int e) {
      const float row_delta = stage.row_delta[n * 8 + column + e];
      unrolled<2>([&](int half) {
        float& dp = r.dp[0][n][half * 2 + e];
        dp = r.p[0][n][half * 2 + e] * (dp - row_delta) * scale;
      });
    });
  }
  static STRATA_DEVICE_INLINE void finish(const LaneRegisters& r, const AttentionView<T>& v,
                                          std::int64_t batch, std::int64_t kv, std::int64_t row, int column,
                                          T* dqkv) {
    unrolled<2>([&](int half) {
      const std::int64_t key = row + half * 8;
      if (key >= v.seq) return;
      T *const dk = dqkv + v.k(batch, kv) + key * v.width() + column, *const dv = dqkv + v.v(batch, kv) +
                                                                                  key * v.width() + column;
      unrolled<kD / 8>([&](int n) {
        store_pair(dk + n * 8, r.dk[0][n][half * 2], r.dk[0][n][half * 2 + 1]);
        store_pair(dv + n * 8, r.dv[0][n][half * 2], r.dv[0][n][half * 2 + 1]);
      });
    });
  }
};

}  // namespace strata::kernels::detail
