#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

#include "cuda/flash_tiles.h"

namespace strata::kernels::detail {

/// A tile of keys of one key head: dk and dv, over its query heads and the queries that see it, in turn.
/// Scores are the other way about: a warp has 16 keys, and columns are queries.
template <class T, int kD, class By = ByWarps>
struct FlashKeys {
  static constexpr int kRows = By::kWarps * 16, kQueries = By::backward(kD);
  using KeyRows = typename By::template Rows<T, kD, kRows>;
  using QueryRows = typename By::template Rows<T, kD, kQueries>;

  /// A tile of queries: that at hand, and the next.
  struct Stage {
    QueryRows q, go;
    float *lse, *center;
    int* begin;  ///< the first key that a query sees; of one past the sequence, none
  };
  struct Memory {
    STRATA_HD explicit Memory(std::byte* shared)
        : memory(shared),
          k{take(kRows)},
          values{take(kRows)},
          queries(take(4 * kQueries)),
          stats(memory.take<float>(4 * kQueries)),
          begins(memory.take<int>(2 * kQueries)) {}
    STRATA_HD T* take(int rows) { return memory.take<T>(rows * KeyRows::kStride); }
    STRATA_HD Stage stage(int i) const {
      return {{queries + i * 2 * kQueries * QueryRows::kStride},
              {queries + (i * 2 + 1) * kQueries * QueryRows::kStride},
              stats + i * 2 * kQueries,
              stats + (i * 2 + 1) * kQueries,
              begins + i * kQueries};
    }
    SharedMemory memory;
    KeyRows k, values;
    T* queries;
    float* stats;
    int* begins;
  };
  struct Lane {
    float dk[1][kD / 8][4], dv[1][kD / 8][4], p[1][kQueries / 8][4], dp[1][kQueries / 8][4];
  };

  template <class Crew, class Slope>
  static STRATA_LANES_BODY void run(const Crew& crew, std::byte* shared, const AttentionView<T>& v,
                                    std::int64_t batch, std::int64_t kv, std::int64_t key,
                                    const Slope& slope_of, const float* lse, const T* dout,
                                    const float* centers, T* dqkv) {
    const std::int64_t first = v.causal ? key : 0;
    const int group = static_cast<int>(v.heads / v.kv_heads);
    const Memory m(shared);
    const int count = query_tiles(v, batch, key, first), turns = group * count;
    const float scale = v.scale * kLog2E;
    typename Crew::template State<Lane> state;
    const auto fetch = [&](std::int64_t head, int tile, int stage) {
      const std::int64_t at = opaque(batch), query = first + tile * kQueries;
      const Stage to = m.stage(stage);
      bring_rows<kQueries>(crew, to.q, query_head(v, at, head), query);
      bring_rows<kQueries>(crew, to.go, dout_head(v, dout, at, head), query);
      crew.threads([&](int i) {
        if (i >= kQueries) return;
        const bool there = query + i < v.seq;
        const std::int64_t stat = v.stat(at, head) + query + i;
        to.lse[i] = there ? lse[stat] * kLog2E : 0.0f;
        to.center[i] = there ? centers[stat] : 0.0f;
        to.begin[i] = there ? first_seen(v, at, query + i) : INT_MAX;
      });
    };

    bring_rows<kRows>(crew, m.k, key_head(v, batch, kv), key);
    bring_rows<kRows>(crew, m.values, value_head(v, batch, kv), key);
    if (turns > 0) fetch(kv * group, 0, 0);
    crew.end_group();
    crew.each(state, [&](const auto& warp, int, auto& lanes) {
      warp.each([&](int lane) { start(warp.at(lanes, lane)); });
    });
    int head = static_cast<int>(kv * group), tile = 0;
    for (int turn = 0; turn < turns; ++turn) {
      const int query = static_cast<int>(first) + tile * kQueries;
      const float bias = slope_of(head) * kLog2E;
      const Stage now = m.stage(turn % 2);
      if (++tile == count) {
        tile = 0;
        ++head;
      }
      if (turn + 1 < turns) fetch(head, tile, (turn + 1) % 2);
      crew.end_group();
      crew.template await<1>();
      crew.each(state, [&](const auto& warp, int index, auto& lanes) {
        // All of these queries come before the warps' keys.
        if (v.causal && query + kQueries <= key + first_together<By, 1>(index)) return;
        const auto p = [&](int lane, int i, int n) { return warp.at(lanes, lane).p[i][n]; };
        const auto dp = [&](int lane, int i, int n) { return warp.at(lanes, lane).dp[i][n]; };
        multiply_rows<1, kQueries / 8>(warp, m.k, index * 16, now.q, p);
        warp.each([&](int lane) {
          probabilities(warp.at(lanes, lane), v, now, query, lane % 4 * 2,
                        static_cast<int>(key) + index * 16 + lane / 4, scale, bias);
        });
        multiply_rows<1, kQueries / 8>(warp, m.values, index * 16, now.go, dp);
        add_weighted_rows<1, kQueries / 16>(
            warp, p, now.go, [&](int lane, int i, int n) { return warp.at(lanes, lane).dv[i][n]; });
        warp.each([&](int lane) { gradients(warp.at(lanes, lane), now, lane % 4 * 2, v.scale); });
        add_weighted_rows<1, kQueries / 16>(
            warp, dp, now.q, [&](int lane, int i, int n) { return warp.at(lanes, lane).dk[i][n]; });
      });
      Crew::meet();  // before this stage is the next's
    }
    crew.each(state, [&](const auto& warp, int index, auto& lanes) {
      warp.each([&](int lane) {
        finish(warp.at(lanes, lane), v, batch, kv, key + index * 16 + lane / 4, lane % 4 * 2, dqkv);
      });
    });
  }

 private:
  /// Of a document or a window that begins behind these keys no query sees them, nor does any after it.
  static STRATA_LANES_BODY int query_tiles(const AttentionView<T>& v, std::int64_t batch, std::int64_t key,
                                           std::int64_t first) {
    int low = 0, high = static_cast<int>((v.seq - first + kQueries - 1) /
                                         kQueries);  // the first such tile is in [low, high]
    if (v.doc_start == nullptr && v.window == 0) return high;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (v.sees_none_from(batch, first + middle * std::int64_t{kQueries}, key + kRows))
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }
  static STRATA_LANES_BODY void start(Lane& r) {
    unrolled<kD / 8, 4>([&](int n, int i) { r.dk[0][n][i] = r.dv[0][n][i] = 0.0f; });
  }
  static STRATA_LANES_BODY void probabilities(Lane& r, const AttentionView<T>& v, const Stage& of, int query,
                                              int column, int row, float scale, float bias) {
    unrolled<kQueries / 8, 2>([&](int n, int e) {
      const int i = n * 8 + column + e;
      const float lse = of.lse[i];
      const int begin = of.begin[i];
      unrolled<2>([&](int half) {
        const int j = row + half * 8;
        float& p = r.p[0][n][half * 2 + e];
        float s = p * scale - lse;
        if (bias != 0.0f) s = s + bias * static_cast<float>(j - (query + i));
        const bool is_seen = j >= begin && (!v.causal || j <= query + i);  // keys past the end are not stored
        p = is_seen ? exp2_of(s) : 0.0f;
      });
    });
  }
  /// dp becomes the gradients of scores.
  static STRATA_LANES_BODY void gradients(Lane& r, const Stage& of, int column, float scale) {
    unrolled<kQueries / 8, 2>([&](int n, int e) {
      const float center = of.center[n * 8 + column + e];
      unrolled<2>([&](int half) {
        float& dp = r.dp[0][n][half * 2 + e];
        dp = r.p[0][n][half * 2 + e] * (dp - center) * scale;
      });
    });
  }
  static STRATA_LANES_BODY void finish(const Lane& r, const AttentionView<T>& v, std::int64_t batch,
                                       std::int64_t kv, std::int64_t row, int column, T* dqkv) {
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
