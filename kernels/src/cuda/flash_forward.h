#pragma once

#include <cstddef>
#include <cstdint>

#include <strata/cpuopt/math/elementary.h>

#include "cuda/flash_tiles.h"

namespace strata::kernels::detail {

/// A tile of queries of one head: outputs and lse.
template <class T, int kD, int kM, class By = ByWarps>
struct FlashForward {
  static constexpr int kRows = By::kWarps * 16 * kM, kKeys = By::forward(kD);
  using QueryRows = typename By::template Rows<T, kD, kRows>;
  using KeyRows = typename By::template Rows<T, kD, kKeys>;

  struct Memory {
    STRATA_HD explicit Memory(std::byte* shared)
        : memory(shared), q{take(kRows)}, k{take(kKeys)}, values{take(kKeys)} {}
    STRATA_HD T* take(int rows) { return memory.take<T>(rows * KeyRows::kStride); }
    SharedMemory memory;
    QueryRows q;
    KeyRows k, values;
  };
  /// Of a lane, which has rows lane / 4 and lane / 4 + 8 of each 16.
  struct Lane {
    float o[kM][kD / 8][4], s[kM][kKeys / 8][4];
    float most[kM][2], top[kM][2], total[kM][2];  ///< totals: of the lane's own columns
    int begin[kM][2];
  };

  template <class Crew>
  static STRATA_LANES_BODY void run(const Crew& crew, std::byte* shared, const AttentionView<T>& v,
                                    std::int64_t batch, std::int64_t head, std::int64_t first, float slope,
                                    T* out, float* lse) {
    const std::int64_t kv = head / (v.heads / v.kv_heads);
    const HeadColumns<T> keys = key_head(v, batch, kv), values = value_head(v, batch, kv);
    const Memory m(shared);
    const KeyTiles tiles = key_tiles<kRows, kKeys>(v, batch, first);
    const float scale = v.scale * kLog2E, bias = slope * kLog2E;
    typename Crew::template State<Lane> state;

    bring_rows<kRows>(crew, m.q, query_head(v, batch, head), first);
    bring_rows<kKeys>(crew, m.k, keys, tiles.begin);
    crew.end_group();
    crew.each(state, [&](const auto& warp, int index, auto& lanes) {
      warp.each([&](int lane) { start(warp.at(lanes, lane), v, batch, row_of(first, index, lane)); });
    });
    for (int tile = 0; tile < tiles.count; ++tile) {
      const std::int64_t key = tiles.begin + tile * std::int64_t{kKeys};
      // Warps all of whose queries come before these keys.
      const auto sees_none = [&](int index) {
        return v.causal && key >= first + end_together<By, kM>(index);
      };
      crew.template await<0>();  // these keys are there, and nobody reads the values before
      bring_rows<kKeys>(crew, m.values, values, key);
      crew.end_group();
      crew.each(state, [&](const auto& warp, int index, auto& lanes) {
        if (sees_none(index)) return;
        multiply_rows<kM, kKeys / 8>(warp, m.q, index * 16 * kM, m.k,
                                     [&](int lane, int i, int n) { return warp.at(lanes, lane).s[i][n]; });
      });
      crew.template await<0>();  // and the values, and nobody reads the keys
      if (tile + 1 < tiles.count) bring_rows<kKeys>(crew, m.k, keys, key + kKeys);
      crew.end_group();
      crew.each(state, [&](const auto& warp, int index, auto& lanes) {
        if (sees_none(index)) return;
        warp.each([&](int lane) {
          scores(warp.at(lanes, lane), v, static_cast<int>(key) + lane % 4 * 2,
                 static_cast<int>(row_of(first, index, lane)), scale, bias);
        });
        unrolled<2 * kM>([&](int i) {
          warp.quads([&](int lane) -> float& { return warp.at(lanes, lane).top[i / 2][i % 2]; },
                     [](float a, float b) { return a > b ? a : b; });
        });
        warp.each([&](int lane) { probabilities(warp.at(lanes, lane)); });
        add_weighted_rows<kM, kKeys / 16>(
            warp, [&](int lane, int i, int n) { return warp.at(lanes, lane).s[i][n]; }, m.values,
            [&](int lane, int i, int n) { return warp.at(lanes, lane).o[i][n]; });
      });
    }
    crew.each(state, [&](const auto& warp, int index, auto& lanes) {
      unrolled<2 * kM>([&](int i) {
        warp.quads([&](int lane) -> float& { return warp.at(lanes, lane).total[i / 2][i % 2]; },
                   [](float a, float b) { return a + b; });
      });
      warp.each([&](int lane) {
        finish(warp.at(lanes, lane), v, batch, head, row_of(first, index, lane), lane % 4 * 2, out, lse);
      });
    });
  }

 private:
  static STRATA_HD std::int64_t row_of(std::int64_t first, int warp, int lane) {
    return first + warp * 16 * kM + lane / 4;
  }

  static STRATA_LANES_BODY void start(Lane& r, const AttentionView<T>& v, std::int64_t batch,
                                      std::int64_t row) {
    unrolled<kM, 2>([&](int m, int half) {
      r.most[m][half] = kLowestScore;
      r.total[m][half] = 0.0f;
      r.begin[m][half] = first_seen(v, batch, row + m * 16 + half * 8);
    });
    unrolled<kM, kD / 8, 4>([&](int m, int n, int i) { r.o[m][n][i] = 0.0f; });
  }
  /// Of what a query does not see, minus infinity; and each row's largest, of these columns and before.
  static STRATA_LANES_BODY void scores(Lane& r, const AttentionView<T>& v, int key, int row, float scale,
                                       float bias) {
    unrolled<kM, 2>([&](int m, int half) {
      const int query = row + m * 16 + half * 8;
      float top = r.most[m][half];
      unrolled<kKeys / 8, 2>([&](int n, int e) {
        const int j = key + n * 8 + e;
        float& s = r.s[m][n][half * 2 + e];
        s = s * scale;
        if (bias != 0.0f) s = s + bias * static_cast<float>(j - query);
        if (!sees(v, r.begin[m][half], query, j)) s = -INFINITY;
        top = s > top ? s : top;
      });
      r.top[m][half] = top;
    });
  }
  static STRATA_LANES_BODY void probabilities(Lane& r) {
    unrolled<kM, 2>([&](int m, int half) {
      const float top = r.top[m][half], keep = exp2_of(r.most[m][half] - top);
      float sum = 0.0f;
      unrolled<kKeys / 8, 2>([&](int n, int e) {
        float& s = r.s[m][n][half * 2 + e];
        s = exp2_of(s - top);
        sum = sum + s;
      });
      r.total[m][half] = r.total[m][half] * keep + sum;
      r.most[m][half] = top;
      unrolled<kD / 8, 2>([&](int n, int e) { r.o[m][n][half * 2 + e] = r.o[m][n][half * 2 + e] * keep; });
    });
  }
  static STRATA_LANES_BODY void finish(const Lane& r, const AttentionView<T>& v, std::int64_t batch,
                                       std::int64_t head, std::int64_t row, int column, T* out, float* lse) {
    unrolled<kM, 2>([&](int m, int half) {
      const std::int64_t query = row + m * 16 + half * 8;
      if (query >= v.seq) return;
      const float total = r.total[m][half];
      T* const to = out + v.out(batch, head) + query * v.heads * v.d + column;
      unrolled<kD / 8>([&](int n) {
        store_pair(to + n * 8, r.o[m][n][half * 2] / total, r.o[m][n][half * 2 + 1] / total);
      });
      if (column == 0)
        lse[v.stat(batch, head) + query] =
            static_cast<float>(static_cast<double>(r.most[m][half]) * 0.69314718055994531 +
                               cpuopt::log_of(static_cast<double>(total)));
    });
  }
};

}  // namespace strata::kernels::detail
