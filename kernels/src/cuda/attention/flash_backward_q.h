#pragma once

#include <cstddef>
#include <cstdint>

#include <strata/simd/math/host_device.h>
#include <strata/dispatch/cuda/lanes.h>

#include "cuda/attention/flash_tiles.h"

namespace strata::kernels::detail {

/// Backward of a tile of queries of one head: computes dq and `delta`, the sum over keys of p * dp. Delta
/// must be that of p and dp themselves: c = rowsum(dO * O), from an output stored in 16 bits, is too
/// inaccurate where one key has most of the weight, or keys have a common part. A pass over the keys for
/// delta alone would cost two products. Here c is only where the one pass begins; with r, the sum over keys
/// of p * (dp - c),
///   delta = c + r   and   dq = scale * (sum of p * (dp - c) * k  -  r * sum of p * k),
/// whose last sum costs one product. r is so small that the rounding of that product does not matter. The p
/// of a query without a sink add up to 1; a sink's part of them has no dp, so that c times it is not in r.
template <class T, int kD, class Policy = MmaPolicy>
struct FlashBackwardQ {
  static constexpr int kRows = Policy::kWarps * 16, kKeys = Policy::backward_keys(kD);
  using QueryRows = typename Policy::template Rows<T, kD, kRows>;
  using KeyRows = typename Policy::template Rows<T, kD, kKeys>;

  struct SharedStorage {
    STRATA_HD explicit SharedStorage(std::byte* shared)
        : arena(shared), q{allocate(kRows)}, dout{allocate(kRows)}, keys(allocate(4 * kKeys)) {}
    STRATA_HD T* allocate(int rows) { return arena.allocate<T>(rows * KeyRows::kStride); }
    // Keys and values of a pipeline stage. Addresses are computed, because an array of pointers would not
    // stay in registers.
    STRATA_HD KeyRows k(int stage) const { return {keys + stage * 2 * kKeys * KeyRows::kStride}; }
    STRATA_HD KeyRows values(int stage) const { return {keys + (stage * 2 + 1) * kKeys * KeyRows::kStride}; }
    SharedMemoryArena arena;
    QueryRows q, dout;
    T* keys;
  };
  struct LaneRegisters {
    float dq[1][kD / 8][4], pk[1][kD / 8][4], p[1][kKeys / 8][4], dp[1][kKeys / 8][4];
    float center[2], rest[2], lse[2];  ///< c, r and the log-sum-exp of each row
  };

  template <class ThreadBlock>
  static STRATA_DEVICE_INLINE void run(const ThreadBlock& block, std::byte* shared, const AttentionView<T>& v,
                                       std::int64_t batch, std::int64_t head, std::int64_t first, float slope,
                                       const float* lse, const T* out, const T* dout, float* delta, T* dqkv) {
    const std::int64_t kv = head / (v.heads / v.kv_heads);
    const SharedStorage m(shared);
    const KeyTileRange tiles = visible_key_tiles<kRows, kKeys>(v, batch, first);
    const float scale = v.scale * kLog2E, bias = slope * kLog2E;
    typename ThreadBlock::template State<LaneRegisters> state;
    const auto fetch = [&](int step) {
      const std::int64_t key = tiles.begin + step * std::int64_t{kKeys};
      const int stage = step % 2;
      load_tile_async<kKeys>(block, m.k(stage), key_head(v, batch, kv), key);
      load_tile_async<kKeys>(block, m.values(stage), value_head(v, batch, kv), key);
    };

    load_tile_async<kRows>(block, m.q, query_head(v, batch, head), first);
    load_tile_async<kRows>(block, m.dout, dout_head(v, dout, batch, head), first);
    fetch(0);
    block.commit_group();
    block.for_each_warp(state, [&](const auto& warp, int index, auto& lanes) {
      warp.for_each_lane([&](int lane) {
        start(warp.at(lanes, lane), v, first + index * 16 + lane / 4, lane % 4 * 2, lse + v.stat(batch, head),
              out + v.out(batch, head), dout + v.out(batch, head));
      });
      sum_rows(
          warp, [&](int lane) -> auto& { return warp.at(lanes, lane).center; });
    });
    for (int step = 0; step < tiles.count; ++step) {
      const std::int64_t key = tiles.begin + step * std::int64_t{kKeys};
      const KeyRows k = m.k(step % 2), values = m.values(step % 2);
      if (step + 1 < tiles.count) fetch(step + 1);
      block.commit_group();
      block.template wait_group<1>();
      block.for_each_warp(state, [&](const auto& warp, int index, auto& lanes) {
        // All queries of the warps that multiply together come before these keys.
        if (v.causal && key >= first + mma_row_end<Policy, 1>(index)) return;
        const auto p = [&](int lane, int i, int n) { return warp.at(lanes, lane).p[i][n]; };
        const auto dp = [&](int lane, int i, int n) { return warp.at(lanes, lane).dp[i][n]; };
        start_gemm_ss<kKeys / 8>(warp, m.q, index * 16, k, p);
        start_gemm_ss<kKeys / 8>(warp, m.dout, index * 16, values, dp);
        Policy::template finish<1, kKeys / 8>(warp, p);  // the exponentials are computed beside dp
        const bool is_masked =
            is_masked_tile<Policy, 1>(v, opaque(batch), static_cast<int>(first), index, static_cast<int>(key),
                                      static_cast<int>(key) + kKeys);
        warp.on_scores(
            {first + mma_row_begin<Policy, 1>(index), mma_rows<Policy, 1>(), key, kKeys, is_masked});
        warp.for_each_lane([&](int lane) {
          probabilities(warp.at(lanes, lane), v, batch, static_cast<int>(key) + lane % 4 * 2,
                        static_cast<int>(first) + index * 16 + lane / 4, scale, bias, is_masked);
        });
        Policy::template hold<kKeys / 8>(warp, p);
        Policy::template finish<0, kKeys / 8>(warp, dp);
        gemm_rs<1, kKeys / 16>(warp, p, k,
                               [&](int lane, int i, int n) { return warp.at(lanes, lane).pk[i][n]; });
        warp.for_each_lane([&](int lane) { gradients(warp.at(lanes, lane), v.scale); });
        gemm_rs<1, kKeys / 16>(warp, dp, k,
                               [&](int lane, int i, int n) { return warp.at(lanes, lane).dq[i][n]; });
      });
      ThreadBlock::sync();  // all warps are done with this stage before it is refilled
    }
    block.for_each_warp(state, [&](const auto& warp, int index, auto& lanes) {
      sum_rows(
          warp, [&](int lane) -> auto& { return warp.at(lanes, lane).rest; });
      warp.for_each_lane([&](int lane) {
        finish(warp.at(lanes, lane), v, batch, head, first + index * 16 + lane / 4, lane % 4 * 2, delta,
               dqkv);
      });
    });
  }

 private:
  static STRATA_DEVICE_INLINE void start(LaneRegisters& r, const AttentionView<T>& v, std::int64_t row,
                                         int column, const float* lse, const T* out, const T* dout) {
    unrolled<2>([&](int half) {
      const std::int64_t query = row + half * 8;
      r.center[half] = r.rest[half] = r.lse[half] = 0.0f;
      if (query >= v.seq) return;
      r.lse[half] = lse[query] * kLog2E;
      const std::int64_t at = query * v.heads * v.d + column;
      unrolled<kD / 8, 2>([&](int n, int e) {
        r.center[half] = r.center[half] + to_f32(out[at + n * 8 + e]) * to_f32(dout[at + n * 8 + e]);
      });
    });
    unrolled<kD / 8, 4>([&](int n, int i) { r.dq[0][n][i] = r.pk[0][n][i] = 0.0f; });
  }
  /// Adds the lanes' parts of a value of both rows.
  template <class Warp, class Values>
  static STRATA_DEVICE_INLINE void sum_rows(const Warp& warp, const Values& values) {
    unrolled<2>([&](int half) {
      warp.quad_reduce([&](int lane) -> float& { return values(lane)[half]; },
                       [](float a, float b) { return a + b; });
    });
  }
  static STRATA_DEVICE_INLINE void probabilities(LaneRegisters& r, const AttentionView<T>& v,
                                                 std::int64_t batch, int key, int row, float scale,
                                                 float bias, bool is_masked) {
    const auto for_each_score = [&](const auto& f) {
      unrolled<2, kKeys / 8, 2>([&](int half, int n, int e) { f(r.p[0][n][half * 2 + e], half, n * 8 + e); });
    };
    for_each_score([&](float& p, int half, int) { p = fused_multiply_add(p, scale, -r.lse[half]); });
    if (bias != 0.0f)
      for_each_score(
          [&](float& p, int half, int j) { p = p + bias * static_cast<float>(key + j - (row + half * 8)); });
    for_each_score([&](float& p, int, int) { p = exp2_approx(p); });
    if (is_masked)
      unrolled<2>([&](int half) {
        const int query = row + half * 8, begin = first_visible_key(v, opaque(batch), query);
        unrolled<kKeys / 8, 2>([&](int n, int e) {
          if (!is_visible(v, begin, query, key + n * 8 + e)) r.p[0][n][half * 2 + e] = 0.0f;
        });
      });
  }
  /// Turns dp into the gradients of the scores, as if delta were c.
  static STRATA_DEVICE_INLINE void gradients(LaneRegisters& r, float scale) {
    unrolled<2>([&](int half) {
      float sum = 0.0f;
      unrolled<kKeys / 8, 2>([&](int n, int e) {
        float& dp = r.dp[0][n][half * 2 + e];
        const float weighted = r.p[0][n][half * 2 + e] * (dp - r.center[half]);
        sum = sum + weighted;
        dp = weighted * scale;
      });
      r.rest[half] = r.rest[half] + sum;
    });
  }
  static STRATA_DEVICE_INLINE void finish(const LaneRegisters& r, const AttentionView<T>& v,
                                          std::int64_t batch, std::int64_t head, std::int64_t row, int column,
                                          float* delta, T* dqkv) {
    unrolled<2>([&](int half) {
      const std::int64_t query = row + half * 8;
      if (query >= v.seq) return;
      T* const to = dqkv + v.q(batch, head) + query * v.width() + column;
      float rest_of_delta = r.rest[half];
      if (v.sinks != nullptr)
        rest_of_delta = rest_of_delta - r.center[half] * exp2_approx(fused_multiply_add(
                                                             to_f32(v.sinks[head]), kLog2E, -r.lse[half]));
      const float rest = rest_of_delta * v.scale;
      const auto dq = [&](int n, int i) { return r.dq[0][n][i] - rest * r.pk[0][n][i]; };
      unrolled<kD / 8>([&](int n) { store_pair(to + n * 8, dq(n, half * 2), dq(n, half * 2 + 1)); });
      if (column == 0) delta[v.stat(batch, head) + query] = r.center[half] + rest_of_delta;
    });
  }
};

}  // namespace strata::kernels::detail
