#pragma once

#include <cstdint>

#include <strata/cpuopt/math/elementary.h>
#include <strata/runtime/float16.h>

#include "cuda/lanes.h"

/// Attention in f32 on tiles of queries and keys, for any head and dtype: what each thread of a block does
/// between its barriers. A Crew is the threads of a block: all(f) calls f(i) for each, and ends when all are
/// done. The host runs it as tests, one thread after the other.
namespace strata::kernels::detail {

inline constexpr int kCrew = 256;

#ifdef __CUDACC__
struct BlockCrew {
  template <class F>
  __device__ void all(const F& f) const {
    f(static_cast<int>(threadIdx.x));
    __syncthreads();
  }
};
#endif
struct CrewInTurn {
  template <class F>
  void all(const F& f) const {
    for (int i = 0; i < kCrew; ++i) f(i);
  }
};

/// Of qkv rows q | k | v, as attention.h has them. `doc_start` may be null; `slope` 0 where there is no
/// ALiBi.
template <class T>
struct AttentionView {
  const T* qkv;
  const std::int32_t* doc_start;
  std::int64_t heads, kv_heads, d, seq;
  float scale;
  bool causal;

  STRATA_HD std::int64_t width() const { return (heads + 2 * kv_heads) * d; }
  STRATA_HD std::int64_t token(std::int64_t batch, std::int64_t place) const { return batch * seq + place; }
  STRATA_HD std::int64_t q(std::int64_t batch, std::int64_t head) const {
    return token(batch, 0) * width() + head * d;
  }
  STRATA_HD std::int64_t k(std::int64_t batch, std::int64_t kv) const {
    return token(batch, 0) * width() + (heads + kv) * d;
  }
  STRATA_HD std::int64_t v(std::int64_t batch, std::int64_t kv) const { return k(batch, kv) + kv_heads * d; }
  STRATA_HD std::int64_t out(std::int64_t batch, std::int64_t head) const {
    return token(batch, 0) * heads * d + head * d;
  }
  STRATA_HD std::int64_t stat(std::int64_t batch, std::int64_t head) const {
    return token(batch, 0) * heads + head * seq;  // [batch, heads, seq]
  }
  STRATA_HD bool sees(std::int64_t batch, std::int64_t query, std::int64_t key) const {
    if (query >= seq || key >= seq) return false;
    if (causal && key > query) return false;
    return doc_start == nullptr || key >= doc_start[token(batch, query)];
  }
};

/// Rows of a head in shared memory, a float more apart than they are long, so that columns lie in many banks.
struct Tile {
  float* at;
  std::int64_t d;
  STRATA_HD float* row(int i) const { return at + i * (d + 1); }
};
template <int kTile>
STRATA_HD constexpr std::int64_t tile_floats(std::int64_t d) {
  return kTile * (d + 1);
}
/// Floats of shared memory that a block takes for `tiles` tiles of rows, `squares` of scores and `columns` of
/// figures by row.
template <int kTile>
STRATA_HD constexpr std::int64_t attention_floats(std::int64_t d, int tiles, int squares, int columns) {
  return tiles * tile_floats<kTile>(d) + (squares * kTile + columns) * kTile;
}

/// Rows [first, first + kTile) of a head; zero past the sequence.
template <int kTile, class Crew, class T>
STRATA_LANES_BODY void load_tile(const Crew& crew, const Tile& tile, const T* head, std::int64_t ld,
                                 std::int64_t first, std::int64_t seq) {
  crew.all([&](int thread) {
    for (std::int64_t e = thread; e < kTile * tile.d; e += kCrew) {
      const auto i = static_cast<int>(e / tile.d);
      const std::int64_t c = e % tile.d;
      tile.row(i)[c] = first + i < seq ? to_f32(head[(first + i) * ld + c]) : 0.0f;
    }
  });
}

/// square[i, j] = a[i] . b[j].
template <int kTile, class Crew>
STRATA_LANES_BODY void products_of(const Crew& crew, const Tile& a, const Tile& b, float* square) {
  crew.all([&](int thread) {
    for (int e = thread; e < kTile * kTile; e += kCrew) {
      const float *x = a.row(e / kTile), *y = b.row(e % kTile);
      float sum = 0.0f;
      for (std::int64_t c = 0; c < a.d; ++c) sum = sum + x[c] * y[c];
      square[e] = sum;
    }
  });
}

/// to[i] = to[i] * keep[i] (where given) + the sum over j of square[i, j] (or square[j, i]) from[j].
template <int kTile, bool kTransposed, class Crew>
STRATA_LANES_BODY void add_products(const Crew& crew, const float* square, const Tile& from, const Tile& to,
                                    const float* keep) {
  crew.all([&](int thread) {
    for (std::int64_t e = thread; e < kTile * to.d; e += kCrew) {
      const auto i = static_cast<int>(e / to.d);
      const std::int64_t c = e % to.d;
      float sum = 0.0f;
      for (int j = 0; j < kTile; ++j)
        sum = sum + square[kTransposed ? j * kTile + i : i * kTile + j] * from.row(j)[c];
      to.row(i)[c] = (keep != nullptr ? to.row(i)[c] * keep[i] : to.row(i)[c]) + sum;
    }
  });
}

template <int kTile, class Crew>
STRATA_LANES_BODY void clear_tile(const Crew& crew, const Tile& tile) {
  crew.all([&](int thread) {
    for (std::int64_t e = thread; e < tile_floats<kTile>(tile.d); e += kCrew) tile.at[e] = 0.0f;
  });
}

/// Keys that some query of [first, first + kTile) sees, from a whole tile on.
template <int kTile, class T>
STRATA_HD std::int64_t first_key(const AttentionView<T>& v, std::int64_t batch, std::int64_t first) {
  // Documents lie one after the other, so the first query sees furthest back.
  return v.doc_start == nullptr ? 0 : v.doc_start[v.token(batch, first)] / kTile * kTile;
}
template <int kTile, class T>
STRATA_HD std::int64_t end_of_keys(const AttentionView<T>& v, std::int64_t first) {
  const std::int64_t end = first + kTile;
  return v.causal && end < v.seq ? end : v.seq;
}

/// A tile of queries of one head: its outputs and lse, with the softmax taken as keys come (Milakov &
/// Gimelshein 2018; Dao et al. 2022). `shared`: attention_floats(d, 4, 1, 3).
template <int kTile, class Crew, class T>
STRATA_LANES_BODY void attention_tile(const Crew& crew, float* shared, const AttentionView<T>& v,
                                      std::int64_t batch, std::int64_t head, std::int64_t first, float slope,
                                      T* out, float* lse) {
  const std::int64_t n = tile_floats<kTile>(v.d), kv = head / (v.heads / v.kv_heads);
  const Tile q{shared, v.d}, k{shared + n, v.d}, values{shared + 2 * n, v.d}, o{shared + 3 * n, v.d};
  float* const scores = shared + 4 * n;
  float *const most = scores + kTile * kTile, *const total = most + kTile, *const keep = total + kTile;
  constexpr float kLowest = -3.402823466e38f;
  load_tile<kTile>(crew, q, v.qkv + v.q(batch, head), v.width(), first, v.seq);
  clear_tile<kTile>(crew, o);
  crew.all([&](int thread) {
    if (thread >= kTile) return;
    most[thread] = kLowest;
    total[thread] = 0.0f;
  });
  for (std::int64_t key = first_key<kTile>(v, batch, first); key < end_of_keys<kTile>(v, first);
       key += kTile) {
    load_tile<kTile>(crew, k, v.qkv + v.k(batch, kv), v.width(), key, v.seq);
    load_tile<kTile>(crew, values, v.qkv + v.v(batch, kv), v.width(), key, v.seq);
    products_of<kTile>(crew, q, k, scores);
    crew.all([&](int i) {
      if (i >= kTile) return;
      float* const row = scores + i * kTile;
      const std::int64_t query = first + i;
      float top = most[i];
      for (int j = 0; j < kTile; ++j) {
        row[j] = row[j] * v.scale + slope * static_cast<float>(key + j - query);
        if (v.sees(batch, query, key + j) && row[j] > top) top = row[j];
      }
      float sum = 0.0f;
      for (int j = 0; j < kTile; ++j) {
        row[j] = v.sees(batch, query, key + j) ? cpuopt::exp_of(row[j] - top) : 0.0f;
        sum = sum + row[j];
      }
      keep[i] = cpuopt::exp_of(most[i] - top);
      total[i] = total[i] * keep[i] + sum;
      most[i] = top;
    });
    add_products<kTile, false>(crew, scores, values, o, keep);
  }
  crew.all([&](int thread) {
    for (std::int64_t e = thread; e < kTile * v.d; e += kCrew) {
      const auto i = static_cast<int>(e / v.d);
      if (first + i < v.seq)
        out[v.out(batch, head) + (first + i) * v.heads * v.d + e % v.d] =
            from_f32<T>(o.row(i)[e % v.d] / total[i]);
    }
    if (thread < kTile && first + thread < v.seq)
      lse[v.stat(batch, head) + first + thread] = static_cast<float>(
          static_cast<double>(most[thread]) + cpuopt::log_of(static_cast<double>(total[thread])));
  });
}

/// scores become p = exp(scale * score + bias - lse), 0 where a query does not see a key.
template <int kTile, class Crew, class T>
STRATA_LANES_BODY void probabilities(const Crew& crew, const AttentionView<T>& v, std::int64_t batch,
                                     std::int64_t head, std::int64_t first, std::int64_t key, float slope,
                                     const float* lse, float* scores) {
  crew.all([&](int thread) {
    for (int e = thread; e < kTile * kTile; e += kCrew) {
      const std::int64_t i = first + e / kTile, j = key + e % kTile;
      scores[e] = v.sees(batch, i, j)
                      ? cpuopt::exp_of(scores[e] * v.scale + slope * static_cast<float>(j - i) -
                                       lse[v.stat(batch, head) + i])
                      : 0.0f;
    }
  });
}

/// A tile of queries of one head: dq, and in `centers` the sum over keys of p dp, which centres a row of
/// score gradients. It is taken of the very p and dp, in a sweep of its own: an output kept in 16 bits is too
/// rough for it. `shared`: attention_floats(d, 5, 2, 1).
template <int kTile, class Crew, class T>
STRATA_LANES_BODY void attention_query_tile(const Crew& crew, float* shared, const AttentionView<T>& v,
                                            std::int64_t batch, std::int64_t head, std::int64_t first,
                                            float slope, const float* lse, const T* dout, float* centers,
                                            T* dqkv) {
  const std::int64_t n = tile_floats<kTile>(v.d), kv = head / (v.heads / v.kv_heads);
  const Tile q{shared, v.d}, go{shared + n, v.d}, k{shared + 2 * n, v.d}, values{shared + 3 * n, v.d},
      dq{shared + 4 * n, v.d};
  float *const p = shared + 5 * n, *const dp = p + kTile * kTile, *const center = dp + kTile * kTile;
  load_tile<kTile>(crew, q, v.qkv + v.q(batch, head), v.width(), first, v.seq);
  load_tile<kTile>(crew, go, dout + v.out(batch, head), v.heads * v.d, first, v.seq);
  clear_tile<kTile>(crew, dq);
  crew.all([&](int thread) {
    if (thread < kTile) center[thread] = 0.0f;
  });
  for (const bool centers_are_known : {false, true})
    for (std::int64_t key = first_key<kTile>(v, batch, first); key < end_of_keys<kTile>(v, first);
         key += kTile) {
      load_tile<kTile>(crew, k, v.qkv + v.k(batch, kv), v.width(), key, v.seq);
      load_tile<kTile>(crew, values, v.qkv + v.v(batch, kv), v.width(), key, v.seq);
      products_of<kTile>(crew, q, k, p);
      products_of<kTile>(crew, go, values, dp);
      probabilities<kTile>(crew, v, batch, head, first, key, slope, lse, p);
      if (!centers_are_known) {
        crew.all([&](int i) {
          if (i < kTile)
            for (int j = 0; j < kTile; ++j) center[i] = center[i] + p[i * kTile + j] * dp[i * kTile + j];
        });
        continue;
      }
      crew.all([&](int thread) {
        for (int e = thread; e < kTile * kTile; e += kCrew)
          p[e] = p[e] * (dp[e] - center[e / kTile]) * v.scale;
      });
      add_products<kTile, false>(crew, p, k, dq, nullptr);
    }
  crew.all([&](int thread) {
    for (std::int64_t e = thread; e < kTile * v.d; e += kCrew) {
      const auto i = static_cast<int>(e / v.d);
      if (first + i < v.seq)
        dqkv[v.q(batch, head) + (first + i) * v.width() + e % v.d] = from_f32<T>(dq.row(i)[e % v.d]);
    }
    if (thread < kTile && first + thread < v.seq)
      centers[v.stat(batch, head) + first + thread] = center[thread];
  });
}

/// A tile of keys of one key head: dk and dv, over its query heads and the queries that see it, in turn.
/// `slope_of(head)`. `shared`: attention_floats(d, 6, 2, 0).
template <int kTile, class Crew, class T, class Slope>
STRATA_LANES_BODY void attention_key_tile(const Crew& crew, float* shared, const AttentionView<T>& v,
                                          std::int64_t batch, std::int64_t kv, std::int64_t key,
                                          const Slope& slope_of, const float* lse, const T* dout,
                                          const float* centers, T* dqkv) {
  const std::int64_t n = tile_floats<kTile>(v.d), group = v.heads / v.kv_heads;
  const Tile k{shared, v.d}, values{shared + n, v.d}, q{shared + 2 * n, v.d}, go{shared + 3 * n, v.d},
      dk{shared + 4 * n, v.d}, dv{shared + 5 * n, v.d};
  float *const p = shared + 6 * n, *const dp = p + kTile * kTile;
  load_tile<kTile>(crew, k, v.qkv + v.k(batch, kv), v.width(), key, v.seq);
  load_tile<kTile>(crew, values, v.qkv + v.v(batch, kv), v.width(), key, v.seq);
  clear_tile<kTile>(crew, dk);
  clear_tile<kTile>(crew, dv);
  for (std::int64_t head = kv * group; head < (kv + 1) * group; ++head)
    for (std::int64_t first = v.causal ? key : 0; first < v.seq; first += kTile) {
      // Of a document that begins behind these keys no query sees them, nor does any after it.
      if (v.doc_start != nullptr && v.doc_start[v.token(batch, first)] >= key + kTile) break;
      load_tile<kTile>(crew, q, v.qkv + v.q(batch, head), v.width(), first, v.seq);
      load_tile<kTile>(crew, go, dout + v.out(batch, head), v.heads * v.d, first, v.seq);
      products_of<kTile>(crew, q, k, p);
      products_of<kTile>(crew, go, values, dp);
      probabilities<kTile>(crew, v, batch, head, first, key, slope_of(head), lse, p);
      add_products<kTile, true>(crew, p, go, dv, nullptr);
      crew.all([&](int thread) {
        for (int e = thread; e < kTile * kTile; e += kCrew) {
          const std::int64_t i = first + e / kTile;
          p[e] = i < v.seq ? p[e] * (dp[e] - centers[v.stat(batch, head) + i]) * v.scale : 0.0f;
        }
      });
      add_products<kTile, true>(crew, p, q, dk, nullptr);
    }
  crew.all([&](int thread) {
    for (std::int64_t e = thread; e < kTile * v.d; e += kCrew) {
      const auto j = static_cast<int>(e / v.d);
      if (key + j >= v.seq) continue;
      dqkv[v.k(batch, kv) + (key + j) * v.width() + e % v.d] = from_f32<T>(dk.row(j)[e % v.d]);
      dqkv[v.v(batch, kv) + (key + j) * v.width() + e % v.d] = from_f32<T>(dv.row(j)[e % v.d]);
    }
  });
}

}  // namespace strata::kernels::detail
