#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <strata/simd/math/host_device.h>
#include <strata/dispatch/cuda/lanes.h>

#include "cuda/attention/flash_softmax.h"
#include "cuda/attention/warpgroup/warp_roles.h"

namespace strata::kernels::detail {

/// Forward of a tile of queries of one head by wgmma: computes outputs and lse. A producer loads tiles of
/// keys and of values into two stages each; two warpgroups have 64 queries each. As in FlashAttention-3, the
/// exponentials of a tile are computed while the tensor cores multiply: each group starts the scores of the
/// next tile and the product with the values of the last one, and the groups take turns, so that one
/// multiplies while the other one has its softmax. Each element is still summed tile by tile in the order of
/// keys.
template <class T, int kD>
struct FlashForwardWgmma {
  using Policy = WgmmaPolicy;
  static constexpr int kRows = Policy::kWarps * 16, kKeys = Policy::forward_inner_tile(kD), kStages = 2;
  // Tiles of keys begin where tiles of queries do: none comes after all queries of one group alone.
  static_assert(kKeys == kRows && kRows == kConsumerWarps * 16);
  using QueryRows = SwizzledRows<T, kD, kRows>;
  using KeyRows = SwizzledRows<T, kD, kKeys>;

  /// The queries' barrier, and those of the stages of keys and values.
  using Barriers = RoleBarriers<1 + 2 * kStages, 2 * kStages>;
  static constexpr int kQueries = 0, kKeysFull = 1, kValuesFull = kKeysFull + kStages,
                       kKeysEmpty = Barriers::kFull, kValuesEmpty = kKeysEmpty + kStages;

  struct SharedStorage {
    STRATA_HD explicit SharedStorage(std::byte* shared)
        : arena(shared), q{allocate(kRows)}, keys(allocate(2 * kStages * kKeys)) {}
    STRATA_HD T* allocate(int rows) { return arena.allocate<T>(rows * KeyRows::kStride); }
    STRATA_HD KeyRows k(unsigned stage) const { return {keys + stage * kKeys * KeyRows::kStride}; }
    STRATA_HD KeyRows values(unsigned stage) const { return k(kStages + stage); }
    SharedMemoryArena arena;
    QueryRows q;
    T* keys;
  };
  struct LaneRegisters {
    float o[1][kD / 8][4], s[1][kKeys / 8][4];
    Fragment p[kKeys / 16];  ///< the probabilities of a tile, rounded, while the next scores are in s
    SoftmaxRows<1> rows;
  };

  template <class ThreadBlock>
  static STRATA_DEVICE_INLINE void run(const ThreadBlock& block, std::byte* shared, const AttentionView<T>& v,
                                       std::int64_t batch, std::int64_t head, std::int64_t first, float slope,
                                       T* out, float* lse) {
    const KeyTileRange tiles = visible_key_tiles<kRows, kKeys>(v, batch, first);
    block.run(
        [&](const auto& producer) { load(producer, SharedStorage(shared), v, batch, head, first, tiles); },
        [&](const auto& group) {
          consume(group, SharedStorage(shared), v, batch, head, first, tiles, slope, out, lse);
        });
  }

 private:
  template <class Producer>
  static STRATA_DEVICE_INLINE void load(const Producer& producer, const SharedStorage& m,
                                        const AttentionView<T>& v, std::int64_t batch, std::int64_t head,
                                        std::int64_t first, KeyTileRange tiles) {
    const std::int64_t kv = head / (v.heads / v.kv_heads);
    load_tile_async<kRows>(producer.completing(kQueries), m.q, query_head(v, batch, head), first);
    for (int tile = 0; tile < tiles.count; ++tile) {
      const PipelineState now{static_cast<unsigned>(tile)};
      const int stage = static_cast<int>(now.index());
      const std::int64_t key = tiles.begin + tile * std::int64_t{kKeys};
      // The phase before the first counts as complete: the stages are empty.
      producer.wait(kKeysEmpty + stage, now.parity() ^ 1);
      load_tile_async<kKeys>(producer.completing(kKeysFull + stage), m.k(now.index()), key_head(v, batch, kv),
                             key);
      producer.wait(kValuesEmpty + stage, now.parity() ^ 1);
      load_tile_async<kKeys>(producer.completing(kValuesFull + stage), m.values(now.index()),
                             value_head(v, batch, kv), key);
    }
  }

  template <class Group>
  static STRATA_DEVICE_INLINE void consume(const Group& group, const SharedStorage& m,
                                           const AttentionView<T>& v, std::int64_t batch, std::int64_t head,
                                           std::int64_t first, KeyTileRange tiles, float slope, T* out,
                                           float* lse) {
    const float scale = v.scale * kLog2E, bias = slope * kLog2E;
    typename Group::template State<LaneRegisters> state;
    const auto wait_for_keys = [&](int tile) {
      const PipelineState stage{static_cast<unsigned>(tile)};
      group.wait(kKeysFull + static_cast<int>(stage.index()), stage.parity());
    };
    const auto start_scores = [&](int tile) {
      const PipelineState stage{static_cast<unsigned>(tile)};
      group.for_each_warp(state, [&](const auto& warp, int index, auto& lanes) {
        start_gemm_ss<kKeys / 8>(warp, m.q, index * 16, m.k(stage.index()), scores_of(warp, lanes));
      });
    };
    const auto start_outputs = [&](int tile) {
      const PipelineState stage{static_cast<unsigned>(tile)};
      group.wait(kValuesFull + static_cast<int>(stage.index()), stage.parity());
      group.for_each_warp(state, [&](const auto& warp, int, auto& lanes) {
        start_gemm_rs<kKeys / 16>(warp, fragments_of(warp, lanes), m.values(stage.index()),
                                  outputs_of(warp, lanes));
      });
    };
    /// Waits for the scores of a tile and turns them into probabilities; kLeft products were started later.
    const auto softmax = [&]<int kLeft>(std::integral_constant<int, kLeft>, int tile) {
      group.for_each_warp(state, [&](const auto& warp, int, auto& lanes) {
        finish_gemm<kLeft, kKeys / 8>(warp, scores_of(warp, lanes));
      });
      group.arrive(kKeysEmpty + tile % kStages);
      const int key = static_cast<int>(tiles.begin) + tile * kKeys, row = static_cast<int>(first);
      group.for_each_warp(state, [&](const auto& warp, int index, auto& lanes) {
        const bool is_masked = is_masked_tile<Policy, 1>(v, opaque(batch), row, index, key, key + kKeys);
        warp.on_scores({row + mma_row_begin<Policy, 1>(index), mma_rows<Policy, 1>(), key, kKeys, is_masked});
        softmax_tile<1, kKeys>(
            warp, [&](int lane) -> auto& { return warp.at(lanes, lane).s; },
            [&](int lane) -> auto& { return warp.at(lanes, lane).rows; }, v, batch, key, row + index * 16,
            scale, bias, is_masked);
        // Otherwise the compiler computes the exponentials behind the wait for the outputs. ptxas moves that
        // one above all arithmetic of its basic block, which the wait for the next keys therefore ends.
        fence_scores<kKeys / 8>(warp, scores_of(warp, lanes));
      });
      if (tile + 1 < tiles.count) wait_for_keys(tile + 1);
    };
    const auto finish_outputs = [&] {
      group.for_each_warp(state, [&](const auto& warp, int, auto& lanes) {
        finish_gemm<0, kD / 8>(warp, outputs_of(warp, lanes));
      });
    };
    const auto pack = [&] {
      group.for_each_warp(state, [&](const auto& warp, int, auto& lanes) {
        warp.for_each_lane(
            [&](int lane) { rescale_sums(warp.at(lanes, lane).rows, warp.at(lanes, lane).o); });
        pack_fragments<T, kKeys / 16>(warp, scores_of(warp, lanes), fragments_of(warp, lanes));
      });
    };

    group.for_each_warp(state, [&](const auto& warp, int, auto& lanes) {
      warp.for_each_lane([&](int lane) {
        start_softmax(warp.at(lanes, lane).rows);
        unrolled<kD / 8, 4>([&](int n, int i) { warp.at(lanes, lane).o[0][n][i] = 0.0f; });
      });
    });
    group.wait(kQueries, 0);
    if (group.index() == 1 && tiles.count > 1) group.pass_turn();
    wait_for_keys(0);
    start_scores(0);
    softmax(std::integral_constant<int, 0>(), 0);
    pack();
    for (int tile = 1; tile < tiles.count; ++tile) {
      group.wait_turn();
      start_scores(tile);
      start_outputs(tile - 1);
      if (group.index() == 0 || tile + 1 < tiles.count) group.pass_turn();
      softmax(std::integral_constant<int, 1>(), tile);
      finish_outputs();
      group.arrive(kValuesEmpty + (tile - 1) % kStages);
      pack();
    }
    start_outputs(tiles.count - 1);
    finish_outputs();
    group.for_each_warp(state, [&](const auto& warp, int index, auto& lanes) {
      store_outputs<1>(
          warp, [&](int lane) -> auto& { return warp.at(lanes, lane).o; },
          [&](int lane) -> auto& { return warp.at(lanes, lane).rows; }, v, batch, head, first + index * 16,
          out, lse);
    });
  }
  template <class Warp, class Lanes>
  static STRATA_DEVICE_INLINE auto scores_of(const Warp& warp, Lanes& lanes) {
    return [&](int lane, int, int n) { return warp.at(lanes, lane).s[0][n]; };
  }
  template <class Warp, class Lanes>
  static STRATA_DEVICE_INLINE auto outputs_of(const Warp& warp, Lanes& lanes) {
    return [&](int lane, int, int n) { return warp.at(lanes, lane).o[0][n]; };
  }
  template <class Warp, class Lanes>
  static STRATA_DEVICE_INLINE auto fragments_of(const Warp& warp, Lanes& lanes) {
    return [&](int lane, int block) -> Fragment& { return warp.at(lanes, lane).p[block]; };
  }
};

}  // namespace strata::kernels::detail
