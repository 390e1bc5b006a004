#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <strata/simd/math/elementary.h>
#include <strata/simd/math/host_device.h>
#include <strata/dispatch/cuda/lanes.h>
#include <strata/runtime/float16.h>

#include "cuda/attention/attention_tiles.h"
#include "cuda/attention/attention_view.h"
#include "lowest_score.h"

/// Tiled attention. `Math` is the policy that multiplies tiles: F32Math for any head dimension and dtype, or
/// MmaMath for tensor cores (attention_mma.h). Scores, softmax and accumulators are f32 with both.
namespace strata::kernels::detail {

/// The first key that some query in [first, first + kTile) sees, rounded down to a whole tile.
template <int kTile, class T>
STRATA_HD std::int64_t first_key(const AttentionView<T>& v, std::int64_t batch, std::int64_t first) {
  // Documents follow each other, so the first query sees furthest back.
  return v.first_visible_key(batch, first) / kTile * kTile;
}
template <int kTile, class T>
STRATA_HD std::int64_t end_of_keys(const AttentionView<T>& v, std::int64_t first) {
  const std::int64_t last = first + kTile < v.q_rows() ? first + kTile - 1 : v.q_rows() - 1;
  return v.causal ? v.keys.before(v.queries.at(last) + 1) : v.k_rows();
}
/// The first query of the first tile in which some query sees key `key`.
template <int kTile, class T>
STRATA_HD std::int64_t first_query(const AttentionView<T>& v, std::int64_t key) {
  return v.causal ? v.queries.before(v.keys.at(key)) / kTile * kTile : 0;
}

/// The sum over the threads that share row `i`, in the order of the threads.
template <int kTile>
STRATA_HD float sum_row_partials(const float* partials, int i) {
  constexpr int kThreadsPerRow = kAttentionThreads / kTile;
  float sum = 0.0f;
  for (int part = 0; part < kThreadsPerRow; ++part) sum = sum + partials[i * kThreadsPerRow + part];
  return sum;
}

/// Forward of a tile of queries of one head: computes outputs and lse with an online softmax (Milakov &
/// Gimelshein 2018; Dao et al. 2022). `shared` has the layout of ForwardSharedStorage.
template <class Math, int kTile>
struct ForwardSharedStorage {
  STRATA_HD ForwardSharedStorage(std::byte* shared, std::int64_t d)
      : arena(shared),
        q(arena.rows<kTile, typename Math::Rows>(d)),
        k(arena.rows<kTile, typename Math::Rows>(d)),
        values(arena.rows<kTile, typename Math::Rows>(d)),
        o(arena.rows<kTile, F32Tile>(d)),
        scores(arena.score_tile<kTile>()),
        row_max(arena.allocate<float>(kTile)),
        row_sum(arena.allocate<float>(kTile)),
        rescale(arena.allocate<float>(kTile)),
        partials(arena.allocate<float>(kAttentionThreads)) {}
  SharedMemoryArena arena;
  typename Math::Rows q, k, values;
  F32Tile o;
  ScoreTile<kTile> scores;
  float *row_max, *row_sum, *rescale, *partials;
};
template <class Math, int kTile, class ThreadBlock, class T, class Out>
STRATA_DEVICE_INLINE void attention_forward_tile(const ThreadBlock& block, std::byte* shared,
                                                 const AttentionView<T>& v, std::int64_t batch,
                                                 std::int64_t head, std::int64_t first, float slope, Out* out,
                                                 float* lse) {
  const std::int64_t kv = head / (v.heads / v.kv_heads);
  const ForwardSharedStorage<Math, kTile> m(shared, v.d);
  const auto &q = m.q, &k = m.k, &values = m.values;
  const F32Tile& o = m.o;
  const ScoreTile<kTile>& scores = m.scores;
  float *const row_max = m.row_max, *const row_sum = m.row_sum, *const rescale = m.rescale,
               *const partials = m.partials;
  constexpr int kThreadsPerRow =
      kAttentionThreads / kTile;  // threads that share a row; each handles every kThreadsPerRow-th column
  Math::template load<kTile>(block, q, v.qkv + v.q_at(batch, head), v.q_width(), first, v.q_rows());
  clear_tile<kTile>(block, o);
  block.run_and_sync([&](int thread) {
    if (thread >= kTile) return;
    row_max[thread] = kLowestScore;
    row_sum[thread] = 0.0f;
  });
  for (std::int64_t key = first_key<kTile>(v, batch, first); key < end_of_keys<kTile>(v, first);
       key += kTile) {
    Math::template load<kTile>(block, k, v.kv_data() + v.k_at(batch, kv), v.kv_width(), key, v.k_rows());
    Math::template load<kTile>(block, values, v.kv_data() + v.v_at(batch, kv), v.kv_width(), key, v.k_rows());
    Math::template gemm_nt<kTile>(block, q, k, scores);
    block.run_and_sync([&](int thread) {
      const int i = thread / kThreadsPerRow;
      const std::int64_t query = first + i;
      float new_max = kLowestScore;
      for (int j = thread % kThreadsPerRow; j < kTile; j += kThreadsPerRow) {
        float& score = scores(i, j);
        score = v.score(score, slope, query, key + j);
        if (v.is_visible(batch, query, key + j) && score > new_max) new_max = score;
      }
      partials[thread] = new_max;
    });
    block.run_and_sync([&](int i) {
      if (i >= kTile) return;
      float new_max = row_max[i];
      for (int part = 0; part < kThreadsPerRow; ++part) {
        const float other = partials[i * kThreadsPerRow + part];
        new_max = other > new_max ? other : new_max;
      }
      rescale[i] = simd::exp_of(row_max[i] - new_max);
      row_max[i] = new_max;
    });
    block.run_and_sync([&](int thread) {
      const int i = thread / kThreadsPerRow;
      float sum = 0.0f;
      for (int j = thread % kThreadsPerRow; j < kTile; j += kThreadsPerRow) {
        float& p = scores(i, j);
        p = v.is_visible(batch, first + i, key + j) ? simd::exp_of(p - row_max[i]) : 0.0f;
        sum = sum + p;
      }
      partials[thread] = sum;
    });
    block.run_and_sync([&](int i) {
      if (i < kTile) row_sum[i] = row_sum[i] * rescale[i] + sum_row_partials<kTile>(partials, i);
    });
    Math::template gemm_accumulate<kTile, false>(block, scores, values, o, rescale);
  }
  block.run_and_sync([&](int thread) {
    if (thread >= kTile || first + thread >= v.q_rows()) return;
    const float of_keys = row_sum[thread] > 0
                              ? static_cast<float>(static_cast<double>(row_max[thread]) +
                                                   simd::log_of(static_cast<double>(row_sum[thread])))
                              : -INFINITY;
    const MergedWeights weights = v.with_sink(head, of_keys);
    rescale[thread] = weights.a;
    lse[v.stat(batch, head) + first + thread] = weights.lse;
  });
  block.run_and_sync([&](int thread) {
    for_each_tile_element<kTile>(thread, v.d, [&](int i, std::int64_t c) {
      if (first + i < v.q_rows())
        out[v.out(batch, head) + (first + i) * v.heads * v.d + c] =
            from_f32<Out>(row_sum[i] > 0 ? o.row(i)[c] / row_sum[i] * rescale[i] : 0.0f);
    });
  });
}

/// Replaces the scores by p = exp(score - lse), or 0 where a query does not see a key. If `delta` (of the
/// tile's queries) is not null, dp becomes dp - delta, times the derivative of the soft cap if there is one.
template <int kTile, class ThreadBlock, class T>
STRATA_DEVICE_INLINE void probabilities(const ThreadBlock& block, const AttentionView<T>& v,
                                        std::int64_t batch, std::int64_t head, std::int64_t first,
                                        std::int64_t key, float slope, const float* lse, const float* delta,
                                        const ScoreTile<kTile>& scores, const ScoreTile<kTile>& dp) {
  block.run_and_sync([&](int thread) {
    for (int e = thread; e < kTile * kTile; e += kAttentionThreads) {
      const std::int64_t i = first + e / kTile, j = key + e % kTile;
      float& p = scores(e / kTile, e % kTile);
      if (!v.is_visible(batch, i, j)) {
        p = 0.0f;
        continue;
      }
      const float product = p;
      p = simd::exp_of(v.score(product, slope, i, j) - lse[v.stat(batch, head) + i]);
      if (delta == nullptr) continue;
      float& d = dp(e / kTile, e % kTile);
      d = d - delta[e / kTile];
      if (v.softcap > 0) d = d * (1.0f - v.capped(product) * v.capped(product));
    }
  });
}

/// Backward of a tile of queries of one head: computes dq and `delta`, the sum over keys of p * dp, which is
/// subtracted from a row of dp (the D of FlashAttention-2). Delta is summed from p and dp themselves in a
/// pass of its own over the keys: rowsum(dO * O) from an output stored in 16 bits is too inaccurate. With
/// `has_delta` it is given, as that of more keys. `shared` has the layout of BackwardQSharedStorage.
template <class Math, int kTile>
struct BackwardQSharedStorage {
  STRATA_HD BackwardQSharedStorage(std::byte* shared, std::int64_t d)
      : arena(shared),
        q(arena.rows<kTile, typename Math::Rows>(d)),
        dout_tile(arena.rows<kTile, typename Math::Rows>(d)),
        k(arena.rows<kTile, typename Math::Rows>(d)),
        values(arena.rows<kTile, typename Math::Rows>(d)),
        dq(arena.rows<kTile, F32Tile>(d)),
        p(arena.score_tile<kTile>()),
        dp(arena.score_tile<kTile>()),
        row_delta(arena.allocate<float>(kTile)),
        partials(arena.allocate<float>(kAttentionThreads)) {}
  SharedMemoryArena arena;
  typename Math::Rows q, dout_tile, k, values;
  F32Tile dq;
  ScoreTile<kTile> p, dp;
  float *row_delta, *partials;
};
template <class Math, int kTile, class ThreadBlock, class T>
STRATA_DEVICE_INLINE void attention_backward_q_tile(const ThreadBlock& block, std::byte* shared,
                                                    const AttentionView<T>& v, std::int64_t batch,
                                                    std::int64_t head, std::int64_t first, float slope,
                                                    const float* lse, const T* dout, float* delta, T* dqkv,
                                                    bool has_delta = false) {
  const std::int64_t kv = head / (v.heads / v.kv_heads);
  const BackwardQSharedStorage<Math, kTile> m(shared, v.d);
  const auto &q = m.q, &dout_tile = m.dout_tile, &k = m.k, &values = m.values;
  const F32Tile& dq = m.dq;
  const ScoreTile<kTile>&p = m.p, &dp = m.dp;
  float *const row_delta = m.row_delta, *const partials = m.partials;
  constexpr int kThreadsPerRow = kAttentionThreads / kTile;
  Math::template load<kTile>(block, q, v.qkv + v.q_at(batch, head), v.q_width(), first, v.q_rows());
  Math::template load<kTile>(block, dout_tile, dout + v.out(batch, head), v.heads * v.d, first, v.q_rows());
  clear_tile<kTile>(block, dq);
  block.run_and_sync([&](int thread) {
    if (thread >= kTile) return;
    const bool given = has_delta && first + thread < v.q_rows();
    row_delta[thread] = given ? delta[v.stat(batch, head) + first + thread] : 0.0f;
  });
  for (int pass = has_delta ? 1 : 0; pass < 2; ++pass) {
    const bool delta_is_known = pass == 1;
    for (std::int64_t key = first_key<kTile>(v, batch, first); key < end_of_keys<kTile>(v, first);
         key += kTile) {
      Math::template load<kTile>(block, k, v.kv_data() + v.k_at(batch, kv), v.kv_width(), key, v.k_rows());
      Math::template load<kTile>(block, values, v.kv_data() + v.v_at(batch, kv), v.kv_width(), key,
                                 v.k_rows());
      Math::template gemm_nt<kTile>(block, q, k, p);
      Math::template gemm_nt<kTile>(block, dout_tile, values, dp);
      probabilities<kTile>(block, v, batch, head, first, key, slope, lse,
                           delta_is_known ? row_delta : nullptr, p, dp);
      if (!delta_is_known) {
        block.run_and_sync([&](int thread) {
          const int i = thread / kThreadsPerRow;
          float sum = 0.0f;
          for (int j = thread % kThreadsPerRow; j < kTile; j += kThreadsPerRow)
            sum = sum + p(i, j) * dp(i, j);
          partials[thread] = sum;
        });
        block.run_and_sync([&](int i) {
          if (i < kTile) row_delta[i] = row_delta[i] + sum_row_partials<kTile>(partials, i);
        });
        continue;
      }
      block.run_and_sync([&](int thread) {
        for (int e = thread; e < kTile * kTile; e += kAttentionThreads) {
          const int i = e / kTile, j = e % kTile;
          p(i, j) = p(i, j) * dp(i, j) * v.scale;
        }
      });
      Math::template gemm_accumulate<kTile, false>(block, p, k, dq, nullptr);
    }
  }
  block.run_and_sync([&](int thread) {
    for_each_tile_element<kTile>(thread, v.d, [&](int i, std::int64_t c) {
      if (first + i < v.q_rows())
        dqkv[v.q_at(batch, head) + (first + i) * v.q_width() + c] = from_f32<T>(dq.row(i)[c]);
    });
    if (!has_delta && thread < kTile && first + thread < v.q_rows())
      delta[v.stat(batch, head) + first + thread] = row_delta[thread];
  });
}

/// Backward of a tile of keys of one key head: computes dk and dv, looping over the query heads of its group
/// and the queries that see the tile. `slope_of(head)` returns the ALiBi slope. `shared` has the layout of
/// BackwardKVSharedStorage.
template <class Math, int kTile>
struct BackwardKVSharedStorage {
  STRATA_HD BackwardKVSharedStorage(std::byte* shared, std::int64_t d)
      : arena(shared),
        k(arena.rows<kTile, typename Math::Rows>(d)),
        values(arena.rows<kTile, typename Math::Rows>(d)),
        q(arena.rows<kTile, typename Math::Rows>(d)),
        dout_tile(arena.rows<kTile, typename Math::Rows>(d)),
        dk(arena.rows<kTile, F32Tile>(d)),
        dv(arena.rows<kTile, F32Tile>(d)),
        p(arena.score_tile<kTile>()),
        dp(arena.score_tile<kTile>()) {}
  SharedMemoryArena arena;
  typename Math::Rows k, values, q, dout_tile;
  F32Tile dk, dv;
  ScoreTile<kTile> p, dp;
};
template <class Math, int kTile, class ThreadBlock, class T, class Slope>
STRATA_DEVICE_INLINE void attention_backward_kv_tile(const ThreadBlock& block, std::byte* shared,
                                                     const AttentionView<T>& v, std::int64_t batch,
                                                     std::int64_t kv, std::int64_t key, const Slope& slope_of,
                                                     const float* lse, const T* dout, const float* delta,
                                                     T* dkv) {
  const std::int64_t group = v.heads / v.kv_heads;
  const BackwardKVSharedStorage<Math, kTile> m(shared, v.d);
  const auto &k = m.k, &values = m.values, &q = m.q, &dout_tile = m.dout_tile;
  const F32Tile &dk = m.dk, &dv = m.dv;
  const ScoreTile<kTile>&p = m.p, &dp = m.dp;
  Math::template load<kTile>(block, k, v.kv_data() + v.k_at(batch, kv), v.kv_width(), key, v.k_rows());
  Math::template load<kTile>(block, values, v.kv_data() + v.v_at(batch, kv), v.kv_width(), key, v.k_rows());
  clear_tile<kTile>(block, dk);
  clear_tile<kTile>(block, dv);
  for (std::int64_t head = kv * group; head < (kv + 1) * group; ++head)
    for (std::int64_t first = first_query<kTile>(v, key); first < v.q_rows(); first += kTile) {
      if (v.keys_below_are_masked(batch, first, key + kTile)) break;
      Math::template load<kTile>(block, q, v.qkv + v.q_at(batch, head), v.q_width(), first, v.q_rows());
      Math::template load<kTile>(block, dout_tile, dout + v.out(batch, head), v.heads * v.d, first,
                                 v.q_rows());
      Math::template gemm_nt<kTile>(block, q, k, p);
      Math::template gemm_nt<kTile>(block, dout_tile, values, dp);
      probabilities<kTile>(block, v, batch, head, first, key, slope_of(head), lse,
                           delta + v.stat(batch, head) + first, p, dp);
      Math::template gemm_accumulate<kTile, true>(block, p, dout_tile, dv, nullptr);
      block.run_and_sync([&](int thread) {
        for (int e = thread; e < kTile * kTile; e += kAttentionThreads) {
          const int i = e / kTile, j = e % kTile;
          p(i, j) = p(i, j) * dp(i, j) * v.scale;
        }
      });
      Math::template gemm_accumulate<kTile, true>(block, p, q, dk, nullptr);
    }
  block.run_and_sync([&](int thread) {
    for_each_tile_element<kTile>(thread, v.d, [&](int j, std::int64_t c) {
      if (key + j >= v.k_rows()) return;
      dkv[v.k_at(batch, kv) + (key + j) * v.kv_width() + c] = from_f32<T>(dk.row(j)[c]);
      dkv[v.v_at(batch, kv) + (key + j) * v.kv_width() + c] = from_f32<T>(dv.row(j)[c]);
    });
  });
}

}  // namespace strata::kernels::detail
