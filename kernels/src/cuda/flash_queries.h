#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/flash_tiles.h"

namespace strata::kernels::detail {

/// A tile of queries of one head: dq, and in `centers` the sum over keys of p dp, taken as in
/// attention_query_tile: of the very p and dp, in a sweep before.
template <class T, int kD, class By = ByWarps>
struct FlashQueries {
  static constexpr int kRows = By::kWarps * 16, kKeys = By::backward(kD);
  using QueryRows = typename By::template Rows<T, kD, kRows>;
  using KeyRows = typename By::template Rows<T, kD, kKeys>;

  struct Memory {
    STRATA_HD explicit Memory(std::byte* shared)
        : memory(shared), q{take(kRows)}, go{take(kRows)}, keys(take(4 * kKeys)) {}
    STRATA_HD T* take(int rows) { return memory.take<T>(rows * KeyRows::kStride); }
    // Of the tile at hand and of the next; by arithmetic, for an array of places would not be in registers.
    STRATA_HD KeyRows k(int stage) const { return {keys + stage * 2 * kKeys * KeyRows::kStride}; }
    STRATA_HD KeyRows values(int stage) const { return {keys + (stage * 2 + 1) * kKeys * KeyRows::kStride}; }
    SharedMemory memory;
    QueryRows q, go;
    T* keys;
  };
  struct Lane {
    float dq[1][kD / 8][4], p[1][kKeys / 8][4], dp[1][kKeys / 8][4];
    float center[2], lse[2];
    int begin[2];
  };

  template <class Crew>
  static STRATA_LANES_BODY void run(const Crew& crew, std::byte* shared, const AttentionView<T>& v,
                                    std::int64_t batch, std::int64_t head, std::int64_t first, float slope,
                                    const float* lse, const T* dout, float* centers, T* dqkv) {
    const std::int64_t kv = head / (v.heads / v.kv_heads);
    const Memory m(shared);
    const KeyTiles tiles = key_tiles<kRows, kKeys>(v, batch, first);
    const float scale = v.scale * kLog2E, bias = slope * kLog2E;
    typename Crew::template State<Lane> state;
    const auto fetch = [&](int turn) {
      const std::int64_t key = tiles.begin + turn % tiles.count * std::int64_t{kKeys};
      const int stage = turn % 2;
      bring_rows<kKeys>(crew, m.k(stage), key_head(v, batch, kv), key);
      bring_rows<kKeys>(crew, m.values(stage), value_head(v, batch, kv), key);
    };

    bring_rows<kRows>(crew, m.q, query_head(v, batch, head), first);
    bring_rows<kRows>(crew, m.go, dout_head(v, dout, batch, head), first);
    fetch(0);
    crew.end_group();
    crew.each(state, [&](const auto& warp, int index, auto& lanes) {
      warp.each([&](int lane) {
        start(warp.at(lanes, lane), v, batch, first + index * 16 + lane / 4, lse + v.stat(batch, head));
      });
    });
    for (int turn = 0; turn < 2 * tiles.count; ++turn) {
      const std::int64_t key = tiles.begin + turn % tiles.count * std::int64_t{kKeys};
      const bool centers_are_known = turn >= tiles.count;
      const KeyRows k = m.k(turn % 2), values = m.values(turn % 2);
      if (turn + 1 < 2 * tiles.count) fetch(turn + 1);
      crew.end_group();
      crew.template await<1>();
      if (turn == tiles.count)  // a row's sum, of its lanes'
        crew.each(state, [&](const auto& warp, int, auto& lanes) {
          unrolled<2>([&](int half) {
            warp.quads([&](int lane) -> float& { return warp.at(lanes, lane).center[half]; },
                       [](float a, float b) { return a + b; });
          });
        });
      crew.each(state, [&](const auto& warp, int index, auto& lanes) {
        // All of their queries come before these keys.
        if (v.causal && key >= first + end_together<By, 1>(index)) return;
        const auto p = [&](int lane, int i, int n) { return warp.at(lanes, lane).p[i][n]; };
        const auto dp = [&](int lane, int i, int n) { return warp.at(lanes, lane).dp[i][n]; };
        multiply_rows<1, kKeys / 8>(warp, m.q, index * 16, k, p);
        multiply_rows<1, kKeys / 8>(warp, m.go, index * 16, values, dp);
        warp.each([&](int lane) {
          probabilities(warp.at(lanes, lane), v, static_cast<int>(key) + lane % 4 * 2,
                        static_cast<int>(first) + index * 16 + lane / 4, scale, bias);
        });
        if (!centers_are_known) {
          warp.each([&](int lane) { add_centers(warp.at(lanes, lane)); });
          return;
        }
        warp.each([&](int lane) { gradients(warp.at(lanes, lane), v.scale); });
        add_weighted_rows<1, kKeys / 16>(
            warp, p, k, [&](int lane, int i, int n) { return warp.at(lanes, lane).dq[i][n]; });
      });
      Crew::meet();  // before these places are the next's
    }
    crew.each(state, [&](const auto& warp, int index, auto& lanes) {
      warp.each([&](int lane) {
        finish(warp.at(lanes, lane), v, batch, head, first + index * 16 + lane / 4, lane % 4 * 2, centers,
               dqkv);
      });
    });
  }

 private:
  static STRATA_LANES_BODY void start(Lane& r, const AttentionView<T>& v, std::int64_t batch,
                                      std::int64_t row, const float* lse) {
    unrolled<2>([&](int half) {
      const std::int64_t query = row + half * 8;
      r.center[half] = 0.0f;
      r.lse[half] = query < v.seq ? lse[query] * kLog2E : 0.0f;
      r.begin[half] = first_seen(v, batch, query);
    });
    unrolled<kD / 8, 4>([&](int n, int i) { r.dq[0][n][i] = 0.0f; });
  }
  static STRATA_LANES_BODY void probabilities(Lane& r, const AttentionView<T>& v, int key, int row,
                                              float scale, float bias) {
    unrolled<2>([&](int half) {
      const int query = row + half * 8;
      unrolled<kKeys / 8, 2>([&](int n, int e) {
        const int j = key + n * 8 + e;
        float& p = r.p[0][n][half * 2 + e];
        float s = p * scale - r.lse[half];
        if (bias != 0.0f) s = s + bias * static_cast<float>(j - query);
        p = sees(v, r.begin[half], query, j) ? exp2_of(s) : 0.0f;
      });
    });
  }
  static STRATA_LANES_BODY void add_centers(Lane& r) {
    unrolled<2>([&](int half) {
      float sum = 0.0f;
      unrolled<kKeys / 8, 2>(
          [&](int n, int e) { sum = sum + r.p[0][n][half * 2 + e] * r.dp[0][n][half * 2 + e]; });
      r.center[half] = r.center[half] + sum;
    });
  }
  static STRATA_LANES_BODY void gradients(Lane& r, float scale) {
    unrolled<kKeys / 8, 4>(
        [&](int n, int i) { r.p[0][n][i] = r.p[0][n][i] * (r.dp[0][n][i] - r.center[i / 2]) * scale; });
  }
  static STRATA_LANES_BODY void finish(const Lane& r, const AttentionView<T>& v, std::int64_t batch,
                                       std::int64_t head, std::int64_t row, int column, float* centers,
                                       T* dqkv) {
    unrolled<2>([&](int half) {
      const std::int64_t query = row + half * 8;
      if (query >= v.seq) return;
      T* const to = dqkv + v.q(batch, head) + query * v.width() + column;
      unrolled<kD / 8>(
          [&](int n) { store_pair(to + n * 8, r.dq[0][n][half * 2], r.dq[0][n][half * 2 + 1]); });
      if (column == 0) centers[v.stat(batch, head) + query] = r.center[half];
    });
  }
};

}  // namespace strata::kernels::detail
