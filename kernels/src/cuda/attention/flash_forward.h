#pragma once

#include <cstddef>
#include <cstdint>

#include <strata/simd/math/host_device.h>
#include <strata/dispatch/cuda/lanes.h>

#include "cuda/attention/flash_softmax.h"

namespace strata::kernels::detail {

/// Forward of a tile of queries of one head by mma.sync: computes outputs and lse.
template <class T, int kD, int kM>
struct FlashForward {
  using Policy = MmaPolicy;
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
    SoftmaxRows<kM> rows;
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
    block.for_each_warp(state, [&](const auto& warp, int, auto& lanes) {
      warp.for_each_lane([&](int lane) {
        start_softmax(warp.at(lanes, lane).rows);
        unrolled<kM, kD / 8, 4>([&](int i, int n, int e) { warp.at(lanes, lane).o[i][n][e] = 0.0f; });
      });
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
        const bool is_masked =
            is_masked_tile<Policy, kM>(v, opaque(batch), static_cast<int>(first), index,
                                       static_cast<int>(key), static_cast<int>(key) + kKeys);
        warp.on_scores(
            {first + mma_row_begin<Policy, kM>(index), mma_rows<Policy, kM>(), key, kKeys, is_masked});
        softmax_tile<kM, kKeys>(
            warp, [&](int lane) -> auto& { return warp.at(lanes, lane).s; },
            [&](int lane) -> auto& { return warp.at(lanes, lane).rows; }, v, batch, static_cast<int>(key),
            static_cast<int>(first) + index * 16 * kM, scale, bias, is_masked);
        warp.for_each_lane(
            [&](int lane) { rescale_sums(warp.at(lanes, lane).rows, warp.at(lanes, lane).o); });
        gemm_rs<kM, kKeys / 16>(
            warp, [&](int lane, int i, int n) { return warp.at(lanes, lane).s[i][n]; }, m.values,
            [&](int lane, int i, int n) { return warp.at(lanes, lane).o[i][n]; });
      });
    }
    block.for_each_warp(state, [&](const auto& warp, int index, auto& lanes) {
      store_outputs<kM>(
          warp, [&](int lane) -> auto& { return warp.at(lanes, lane).o; },
          [&](int lane) -> auto& { return warp.at(lanes, lane).rows; }, v, batch, head,
          first + index * 16 * kM, out, lse);
    });
  }
};

}  // namespace strata::kernels::detail
