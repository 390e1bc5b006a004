#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include <strata/dispatch/cuda/packs.h>

#include "cuda/cached_attention/cached_attention_math.h"
#include "cuda/warps.h"
#include "few_rows_table.h"

/// Attention over a KV cache in three kernels, each of which splits its work by shape alone so that few rows
/// occupy a GPU, too: scores by keys, weights by (row, head), sums by elements of a head. Every number is
/// added up in the order of cached_attention.cpp, hence the bits of the host: a score by chains over the
/// elements of a head (gemm_chains.h), the sum of a softmax by sixteen threads, an element of the output by
/// chains over keys.
namespace strata::kernels::detail {

/// Blocks of the three kernels for the rows whose scores the workspace has at once.
struct CachedGrids {
  std::int64_t key_blocks, score_heads;  ///< blocks that compute scores, for each (row, key head)
  std::int64_t elem_blocks, sum_heads;   ///< blocks that add up values, for each (row, key head)
};
/// What a row sees of its sequence: `n` keys from position `first`, which is at offset `cache` of a key head,
/// on. No keys without a slot.
struct VisibleKeys {
  std::int64_t cache, first, n;

  /// Keys from `key` on, of the n, which belong to the chain of key `key`.
  STRATA_HD int chain(std::int64_t key) const {
    const std::int64_t left = n - key, of_chain = kChain - (first + key) % kChain;
    return left < 0 ? 0 : static_cast<int>(left < of_chain ? left : of_chain);
  }
};
template <class T>
STRATA_HD VisibleKeys visible_keys(const CachedView<T>& v, std::int64_t r, std::int64_t kv_head) {
  const std::int64_t slot = v.slots[r];
  if (slot < 0) return {0, 0, 0};
  const std::int64_t all = std::int64_t{v.positions[r]} + 1, first = v.first_visible(all);
  return {v.cache_of(slot, kv_head) + first * v.d, first, all - first};
}

/// Copies 16 bytes to shared memory asynchronously, or element by element where packs are not aligned; zeros
/// if not `valid`.
template <bool kPacked, class ThreadBlock, class T>
STRATA_DEVICE_INLINE void stage_pack(const ThreadBlock&, T* to, const T* from, int valid) {
  constexpr int kSize = dispatch::Pack<T>::kSize;
  if constexpr (kPacked) {
    ThreadBlock::cp_async(to, from, valid > 0);
  } else {
    for (int i = 0; i < kSize; ++i) to[i] = i < valid ? from[i] : T{};
  }
}

// --- scores

/// A thread has one key and kScoreHeads query heads.
inline constexpr int kScoreWarps = 4, kScoreKeys = kScoreWarps * 32, kScoreHeads = 4, kScoreElems = 64;
template <class T>
struct ScoreStage {
  static constexpr int kPack = dispatch::Pack<T>::kSize, kStride = kScoreElems + kPack;
  alignas(16) T keys[kScoreKeys * kStride];
  alignas(16) float queries[kScoreHeads * kScoreElems];
};
static_assert(kChain % kScoreElems == 0);
struct KeySums {
  float chain[kScoreHeads], before[kScoreHeads];  ///< the present chain, and the sum of those before it
};

/// The scores of row `r` (row `of_scores` of the scratch) of keys [first, first + kScoreKeys) for the heads
/// [head, head + kScoreHeads) of key head `kv_head`. `x` has `v.capacity` scores for each row and head.
template <bool kPacked, class ThreadBlock, class T, class Slopes, class Sums>
STRATA_DEVICE_INLINE void cached_scores(const ThreadBlock& block, const CachedView<T>& v, float scale,
                                        const Slopes& slopes, std::int64_t r, std::int64_t of_scores,
                                        std::int64_t kv_head, int head, std::int64_t first, float* x,
                                        ScoreStage<T>& stage, Sums& sums) {
  using Stage = ScoreStage<T>;
  const VisibleKeys visible = visible_keys(v, r, kv_head);
  if (first >= visible.n) return;
  const int group = v.group(), d = static_cast<int>(v.d);
  const std::int64_t left = visible.n - first;
  const int keys = left < kScoreKeys ? static_cast<int>(left) : kScoreKeys,
            heads = group - head < kScoreHeads ? group - head : kScoreHeads;
  const T* const cache = v.keys + visible.cache + first * v.d;
  const T* const query = v.qkv + r * v.width() + (kv_head * group + head) * v.d;
  for (int begin = 0; begin < d; begin += kScoreElems) {
    const int elems = d - begin < kScoreElems ? d - begin : kScoreElems;
    block.sync();  // the keys before have been read
    block.for_each_thread([&](int thread) {
      constexpr int kPerRow = kScoreElems / Stage::kPack;
      for (int i = thread; i < kScoreKeys * kPerRow; i += kScoreKeys) {
        const int key = i / kPerRow, at = i % kPerRow * Stage::kPack,
                  valid = key < keys && at < elems ? elems - at : 0;
        stage_pack<kPacked>(block, stage.keys + key * Stage::kStride + at,
                            valid > 0 ? cache + key * d + begin + at : cache, valid);
      }
      for (int i = thread; i < kScoreHeads * kScoreElems; i += kScoreKeys) {
        const int h = i / kScoreElems, e = i % kScoreElems;
        stage.queries[i] = h < heads && e < elems ? to_f32(query[h * d + begin + e]) : 0.0f;
      }
    });
    block.commit_group();
    block.template wait_group<0>();
    block.for_each_thread([&](int thread) {
      KeySums& own = ThreadBlock::own(sums, thread);
      if (begin % kChain == 0)
        unrolled<kScoreHeads>([&](int h) {
          own.before[h] = begin <= kChain ? own.chain[h] : own.before[h] + own.chain[h];
          own.chain[h] = 0.0f;
        });
      for (int e = 0; e < elems; e += dispatch::kLanes) {
        float key[dispatch::kLanes];
        unrolled<dispatch::kLanes / Stage::kPack>([&](int pack) {
          const auto of_key =
              dispatch::load_pack(stage.keys + thread * Stage::kStride + e + pack * Stage::kPack);
          unrolled<Stage::kPack>([&](int i) { key[pack * Stage::kPack + i] = to_f32(of_key.value[i]); });
        });
        const auto add = [&](int i, int h) {
          own.chain[h] = fmaf(stage.queries[h * kScoreElems + e + i], key[i], own.chain[h]);
        };
        if (e + dispatch::kLanes <= elems)
          unrolled<dispatch::kLanes, kScoreHeads>(add);
        else
          unrolled<dispatch::kLanes, kScoreHeads>([&](int i, int h) {
            if (e + i < elems) add(i, h);
          });
      }
    });
  }
  block.for_each_thread([&](int thread) {
    const KeySums& own = ThreadBlock::own(sums, thread);
    unrolled<kScoreHeads>([&](int h) {
      const float product = d <= kChain ? own.chain[h] : own.before[h] + own.chain[h];
      const std::int64_t of_head = kv_head * group + head + h;
      if (h < heads && thread < keys)
        x[(of_scores * v.heads + of_head) * v.capacity + first + thread] =
            v.score(product, scale, slopes(of_head), first + thread, visible.n);
    });
  });
}

// --- weights

inline constexpr int kSoftmaxWarps = 8, kSoftmaxThreads = kSoftmaxWarps * 32, kSoftmaxTile = 2048;
struct SoftmaxStage {
  float exps[kSoftmaxTile];
  float of_threads[kSoftmaxThreads];  ///< maxima, then in the first sixteen the sums of lanes
};
/// Turns the n scores in `x`, times `scale`, into softmax weights in place: maxima and exponentials by all
/// threads, the sum in the order of sixteen lanes. They are the weights of `head`, so a sink takes its part.
template <class ThreadBlock, class T>
STRATA_DEVICE_INLINE void cached_softmax_block(const ThreadBlock& block, const CachedView<T>& v,
                                               std::int64_t head, float* x, float scale, std::int64_t n,
                                               SoftmaxStage& stage) {
  block.for_each_thread([&](int thread) {
    float most = kLowestScore;
    for (std::int64_t i = thread; i < n; i += kSoftmaxThreads) most = x[i] > most ? x[i] : most;
    stage.of_threads[thread] = most;
  });
  for (int width = kSoftmaxThreads / 2; width > 0; width /= 2) {
    block.sync();
    block.for_each_thread([&](int thread) {
      if (thread >= width) return;
      const float other = stage.of_threads[thread + width];
      if (other > stage.of_threads[thread]) stage.of_threads[thread] = other;
    });
  }
  block.sync();
  const float row_max = stage.of_threads[0] * scale;
  block.sync();  // all threads have read the maximum
  for (std::int64_t first = 0; first < n; first += kSoftmaxTile) {
    const int length = n - first < kSoftmaxTile ? static_cast<int>(n - first) : kSoftmaxTile;
    block.for_each_thread([&](int thread) {
      for (int i = thread; i < length; i += kSoftmaxThreads)
        stage.exps[i] = x[first + i] = simd::exp_of(x[first + i] * scale - row_max);
    });
    block.sync();
    block.for_each_thread([&](int thread) {
      if (thread >= dispatch::kLanes) return;
      float sum = first == 0 ? 0.0f : stage.of_threads[thread];
      for (int i = thread; i < length; i += dispatch::kLanes) sum = sum + stage.exps[i];
      stage.of_threads[thread] = sum;
    });
    block.sync();
  }
  block.for_each_thread([&](int thread) {
    float lanes[dispatch::kLanes];
    unrolled<dispatch::kLanes>([&](int i) { lanes[i] = stage.of_threads[i]; });
    unrolled<8>([&](int i) { lanes[i] = lanes[i] + lanes[i + 8]; });
    unrolled<4>([&](int i) { lanes[i] = lanes[i] + lanes[i + 4]; });
    unrolled<2>([&](int i) { lanes[i] = lanes[i] + lanes[i + 2]; });
    const float total = lanes[0] + lanes[1], inverse = 1.0f / total;
    for (std::int64_t i = thread; i < n; i += kSoftmaxThreads) x[i] = x[i] * inverse;
    if (v.sinks == nullptr) return;
    const float weight = v.weight_of_keys(
        head, static_cast<float>(static_cast<double>(row_max) + simd::log_of(static_cast<double>(total))));
    for (std::int64_t i = thread; i < n; i += kSoftmaxThreads) x[i] = x[i] * weight;
  });
}

// --- sums

/// A thread adds up one element of one head over all keys, whose values are staged chain by chain: one pack
/// of elements of each key, and the weights of up to kSumHeads heads.
inline constexpr int kSumWarps = 2, kSumThreads = kSumWarps * 32, kSumHeads = 8, kSumKeys = kChain;
template <class T>
struct SumStage {
  static constexpr int kPack = dispatch::Pack<T>::kSize;
  alignas(16) T values[2][kSumKeys * kPack];
  alignas(16) float weights[2][kSumHeads * kSumKeys];
  float sums[kSumThreads];
};
/// Elements [element, element + a pack) of heads [head, head + kSumHeads) of key head `kv_head` of row `r`.
template <bool kPacked, class ThreadBlock, class T>
STRATA_DEVICE_INLINE void cached_weighted_sums(const ThreadBlock& block, const CachedView<T>& v,
                                               std::int64_t r, std::int64_t of_weights, std::int64_t kv_head,
                                               int head, int element, const float* x, SumStage<T>& stage) {
  constexpr int kPack = SumStage<T>::kPack, kFloats = dispatch::Pack<float>::kSize;
  static_assert(kSumHeads * kPack <= kSumThreads);
  const VisibleKeys visible = visible_keys(v, r, kv_head);
  const int group = v.group(), d = static_cast<int>(v.d);
  const int heads = group - head < kSumHeads ? group - head : kSumHeads,
            elems = d - element < kPack ? d - element : kPack;
  const std::int64_t first_head = kv_head * group + head;
  const float* const weights = x + (of_weights * v.heads + first_head) * v.capacity;
  const T* const values = v.values + visible.cache + element;
  const auto stage_chain = [&](std::int64_t first, int into) {
    const int keys = visible.chain(first);
    block.for_each_thread([&](int thread) {
      for (int key = thread; key < kSumKeys; key += kSumThreads)
        stage_pack<kPacked>(block, stage.values[into] + key * kPack,
                            key < keys ? values + (first + key) * d : v.values, key < keys ? elems : 0);
      constexpr int kPerHead = kSumKeys / kFloats;
      for (int i = thread; i < kSumHeads * kPerHead; i += kSumThreads) {
        const int h = i / kPerHead, at = i % kPerHead * kFloats,
                  valid = h < heads && at < keys ? keys - at : 0;
        stage_pack<kPacked>(block, stage.weights[into] + h * kSumKeys + at,
                            valid > 0 ? weights + h * v.capacity + first + at : x, valid);
      }
    });
    block.commit_group();
  };
  block.for_each_thread([&](int thread) { stage.sums[thread] = 0.0f; });  // for rows without keys
  stage_chain(0, 0);
  int from = 0;
  for (std::int64_t first = 0; first < visible.n; first += visible.chain(first), from = 1 - from) {
    const int keys = visible.chain(first);
    stage_chain(first + keys, 1 - from);
    block.template wait_group<1>();
    block.for_each_thread([&](int thread) {
      const int h = thread / kPack, e = thread % kPack;
      if (h >= heads) return;
      const T* const of_element = stage.values[from] + e;
      const float* const of_head = stage.weights[from] + h * kSumKeys;
      float chain = 0.0f;
      int key = 0;
      for (; key + 8 <= keys; key += 8)
        unrolled<8>(
            [&](int i) { chain = fmaf(of_head[key + i], to_f32(of_element[(key + i) * kPack]), chain); });
      for (; key < keys; ++key) chain = fmaf(of_head[key], to_f32(of_element[key * kPack]), chain);
      stage.sums[thread] = first == 0 ? chain : stage.sums[thread] + chain;
    });
    block.sync();  // the tile has been read
  }
  block.template wait_group<0>();
  block.for_each_thread([&](int thread) {
    const int h = thread / kPack, e = thread % kPack;
    if (h < heads && e < elems)
      v.out[(r * v.heads + first_head + h) * v.d + element + e] = from_f32<T>(stage.sums[thread]);
  });
}

/// The grids for heads of `d` elements and caches of `capacity` positions, of which `window` are visible (0:
/// all).
template <class T>
constexpr CachedGrids cached_grids(const CachedView<T>& v) {
  const std::int64_t group = v.group(), keys = v.window > 0 && v.window < v.capacity ? v.window : v.capacity;
  constexpr int kPack = SumStage<T>::kPack;
  return {(keys + kScoreKeys - 1) / kScoreKeys, (group + kScoreHeads - 1) / kScoreHeads,
          (v.d + kPack - 1) / kPack, (group + kSumHeads - 1) / kSumHeads};
}

#ifdef __CUDACC__
template <int kWarps>
struct CachedBlock : BlockWarps<kWarps> {
  static __device__ __forceinline__ KeySums& own(KeySums& sums, int) { return sums; }
};
#endif

}  // namespace strata::kernels::detail
