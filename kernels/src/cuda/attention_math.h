#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <strata/cpuopt/math/elementary.h>
#include <strata/runtime/float16.h>

#include "cuda/attention_tiles.h"

/// Attention on tiles of queries and keys. Math is how tiles are multiplied: F32Math for any head and dtype,
/// or tensor cores (attention_mma.h). Scores, softmax and sums are f32 with either.
namespace strata::kernels::detail {

/// Of qkv rows q | k | v, as attention.h has them. `doc_start` may be null; `slope` 0 where there is no
/// ALiBi.
template <class T>
struct AttentionView {
  const T* qkv;
  const std::int32_t* doc_start;
  std::int64_t heads, kv_heads, d, seq;
  float scale;
  bool causal;
  std::int64_t window = 0;
  float softcap = 0;

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
    if (window > 0 && query - key >= window) return false;
    return doc_start == nullptr || key >= doc_start[token(batch, query)];
  }
  /// The first key that a query of the sequence sees.
  STRATA_HD std::int64_t first_seen(std::int64_t batch, std::int64_t query) const {
    const std::int64_t start = doc_start == nullptr ? 0 : doc_start[token(batch, query)];
    return window > 0 && query - window + 1 > start ? query - window + 1 : start;
  }
  /// Whether queries from `query` on, whose documents and windows lie one after the other, see none of the
  /// keys below `end`.
  STRATA_HD bool sees_none_from(std::int64_t batch, std::int64_t query, std::int64_t end) const {
    return first_seen(batch, query) >= end;
  }
  /// The tanh of a product of a query and a key, where scores are capped: cap * it is the score.
  STRATA_HD float capped(float product) const { return cpuopt::tanh_of(product * (scale / softcap)); }
  STRATA_HD float score(float product, float slope, std::int64_t query, std::int64_t key) const {
    if (softcap > 0) return capped(product) * softcap;
    return product * scale + slope * static_cast<float>(key - query);
  }
};

/// Keys that some query of [first, first + kTile) sees, from a whole tile on.
template <int kTile, class T>
STRATA_HD std::int64_t first_key(const AttentionView<T>& v, std::int64_t batch, std::int64_t first) {
  // Documents lie one after the other, so the first query sees furthest back.
  return v.first_seen(batch, first) / kTile * kTile;
}
template <int kTile, class T>
STRATA_HD std::int64_t end_of_keys(const AttentionView<T>& v, std::int64_t first) {
  const std::int64_t end = first + kTile;
  return v.causal && end < v.seq ? end : v.seq;
}

/// Of the threads that share row `i`, in turn.
template <int kTile>
STRATA_HD float sum_of_parts(const float* parts, int i) {
  constexpr int kParts = kCrew / kTile;
  float sum = 0.0f;
  for (int part = 0; part < kParts; ++part) sum = sum + parts[i * kParts + part];
  return sum;
}

/// A tile of queries of one head: its outputs and lse, with the softmax taken as keys come (Milakov &
/// Gimelshein 2018; Dao et al. 2022). `shared`: as ForwardMemory says.
template <class Math, int kTile>
struct ForwardMemory {
  STRATA_HD ForwardMemory(std::byte* shared, std::int64_t d)
      : memory(shared),
        q(memory.rows<kTile, typename Math::Rows>(d)),
        k(memory.rows<kTile, typename Math::Rows>(d)),
        values(memory.rows<kTile, typename Math::Rows>(d)),
        o(memory.rows<kTile, Tile>(d)),
        scores(memory.square<kTile>()),
        most(memory.take<float>(kTile)),
        total(memory.take<float>(kTile)),
        keep(memory.take<float>(kTile)),
        parts(memory.take<float>(kCrew)) {}
  SharedMemory memory;
  typename Math::Rows q, k, values;
  Tile o;
  Square<kTile> scores;
  float *most, *total, *keep, *parts;
};
template <class Math, int kTile, class Crew, class T>
STRATA_LANES_BODY void attention_tile(const Crew& crew, std::byte* shared, const AttentionView<T>& v,
                                      std::int64_t batch, std::int64_t head, std::int64_t first, float slope,
                                      T* out, float* lse) {
  const std::int64_t kv = head / (v.heads / v.kv_heads);
  const ForwardMemory<Math, kTile> m(shared, v.d);
  const auto &q = m.q, &k = m.k, &values = m.values;
  const Tile& o = m.o;
  const Square<kTile>& scores = m.scores;
  float *const most = m.most, *const total = m.total, *const keep = m.keep, *const parts = m.parts;
  constexpr int kParts = kCrew / kTile;  // threads that share a row, every kParts-th column each
  constexpr float kLowest = -3.402823466e38f;
  Math::template load<kTile>(crew, q, v.qkv + v.q(batch, head), v.width(), first, v.seq);
  clear_tile<kTile>(crew, o);
  crew.all([&](int thread) {
    if (thread >= kTile) return;
    most[thread] = kLowest;
    total[thread] = 0.0f;
  });
  for (std::int64_t key = first_key<kTile>(v, batch, first); key < end_of_keys<kTile>(v, first);
       key += kTile) {
    Math::template load<kTile>(crew, k, v.qkv + v.k(batch, kv), v.width(), key, v.seq);
    Math::template load<kTile>(crew, values, v.qkv + v.v(batch, kv), v.width(), key, v.seq);
    Math::template products<kTile>(crew, q, k, scores);
    crew.all([&](int thread) {
      const int i = thread / kParts;
      const std::int64_t query = first + i;
      float top = kLowest;
      for (int j = thread % kParts; j < kTile; j += kParts) {
        float& score = scores(i, j);
        score = v.score(score, slope, query, key + j);
        if (v.sees(batch, query, key + j) && score > top) top = score;
      }
      parts[thread] = top;
    });
    crew.all([&](int i) {
      if (i >= kTile) return;
      float top = most[i];
      for (int part = 0; part < kParts; ++part) {
        const float other = parts[i * kParts + part];
        top = other > top ? other : top;
      }
      keep[i] = cpuopt::exp_of(most[i] - top);
      most[i] = top;
    });
    crew.all([&](int thread) {
      const int i = thread / kParts;
      float sum = 0.0f;
      for (int j = thread % kParts; j < kTile; j += kParts) {
        float& p = scores(i, j);
        p = v.sees(batch, first + i, key + j) ? cpuopt::exp_of(p - most[i]) : 0.0f;
        sum = sum + p;
      }
      parts[thread] = sum;
    });
    crew.all([&](int i) {
      if (i < kTile) total[i] = total[i] * keep[i] + sum_of_parts<kTile>(parts, i);
    });
    Math::template add<kTile, false>(crew, scores, values, o, keep);
  }
  crew.all([&](int thread) {
    each_of_rows<kTile>(thread, v.d, [&](int i, std::int64_t c) {
      if (first + i < v.seq)
        out[v.out(batch, head) + (first + i) * v.heads * v.d + c] = from_f32<T>(o.row(i)[c] / total[i]);
    });
    if (thread < kTile && first + thread < v.seq)
      lse[v.stat(batch, head) + first + thread] = static_cast<float>(
          static_cast<double>(most[thread]) + cpuopt::log_of(static_cast<double>(total[thread])));
  });
}

/// scores become p = exp(score - lse), 0 where a query does not see a key. Where `centers`, of the tile's
/// queries, are known, dp becomes its distance from them, times the derivative of the soft cap.
template <int kTile, class Crew, class T>
STRATA_LANES_BODY void probabilities(const Crew& crew, const AttentionView<T>& v, std::int64_t batch,
                                     std::int64_t head, std::int64_t first, std::int64_t key, float slope,
                                     const float* lse, const float* centers, const Square<kTile>& scores,
                                     const Square<kTile>& dp) {
  crew.all([&](int thread) {
    for (int e = thread; e < kTile * kTile; e += kCrew) {
      const std::int64_t i = first + e / kTile, j = key + e % kTile;
      float& p = scores(e / kTile, e % kTile);
      if (!v.sees(batch, i, j)) {
        p = 0.0f;
        continue;
      }
      const float product = p;
      p = cpuopt::exp_of(v.score(product, slope, i, j) - lse[v.stat(batch, head) + i]);
      if (centers == nullptr) continue;
      float& d = dp(e / kTile, e % kTile);
      d = d - centers[e / kTile];
      if (v.softcap > 0) d = d * (1.0f - v.capped(product) * v.capped(product));
    }
  });
}

/// A tile of queries of one head: dq, and in `centers` the sum over keys of p dp, which centres a row of
/// score gradients. It is taken of the very p and dp, in a sweep of its own: an output kept in 16 bits is too
/// rough for it. `shared`: as QueryMemory says.
template <class Math, int kTile>
struct QueryMemory {
  STRATA_HD QueryMemory(std::byte* shared, std::int64_t d)
      : memory(shared),
        q(memory.rows<kTile, typename Math::Rows>(d)),
        go(memory.rows<kTile, typename Math::Rows>(d)),
        k(memory.rows<kTile, typename Math::Rows>(d)),
        values(memory.rows<kTile, typename Math::Rows>(d)),
        dq(memory.rows<kTile, Tile>(d)),
        p(memory.square<kTile>()),
        dp(memory.square<kTile>()),
        center(memory.take<float>(kTile)),
        parts(memory.take<float>(kCrew)) {}
  SharedMemory memory;
  typename Math::Rows q, go, k, values;
  Tile dq;
  Square<kTile> p, dp;
  float *center, *parts;
};
template <class Math, int kTile, class Crew, class T>
STRATA_LANES_BODY void attention_query_tile(const Crew& crew, std::byte* shared, const AttentionView<T>& v,
                                            std::int64_t batch, std::int64_t head, std::int64_t first,
                                            float slope, const float* lse, const T* dout, float* centers,
                                            T* dqkv) {
  const std::int64_t kv = head / (v.heads / v.kv_heads);
  const QueryMemory<Math, kTile> m(shared, v.d);
  const auto &q = m.q, &go = m.go, &k = m.k, &values = m.values;
  const Tile& dq = m.dq;
  const Square<kTile>&p = m.p, &dp = m.dp;
  float *const center = m.center, *const parts = m.parts;
  constexpr int kParts = kCrew / kTile;
  Math::template load<kTile>(crew, q, v.qkv + v.q(batch, head), v.width(), first, v.seq);
  Math::template load<kTile>(crew, go, dout + v.out(batch, head), v.heads * v.d, first, v.seq);
  clear_tile<kTile>(crew, dq);
  crew.all([&](int thread) {
    if (thread < kTile) center[thread] = 0.0f;
  });
  for (const bool centers_are_known : {false, true})
    for (std::int64_t key = first_key<kTile>(v, batch, first); key < end_of_keys<kTile>(v, first);
         key += kTile) {
      Math::template load<kTile>(crew, k, v.qkv + v.k(batch, kv), v.width(), key, v.seq);
      Math::template load<kTile>(crew, values, v.qkv + v.v(batch, kv), v.width(), key, v.seq);
      Math::template products<kTile>(crew, q, k, p);
      Math::template products<kTile>(crew, go, values, dp);
      probabilities<kTile>(crew, v, batch, head, first, key, slope, lse, centers_are_known ? center : nullptr,
                           p, dp);
      if (!centers_are_known) {
        crew.all([&](int thread) {
          const int i = thread / kParts;
          float sum = 0.0f;
          for (int j = thread % kParts; j < kTile; j += kParts) sum = sum + p(i, j) * dp(i, j);
          parts[thread] = sum;
        });
        crew.all([&](int i) {
          if (i < kTile) center[i] = center[i] + sum_of_parts<kTile>(parts, i);
        });
        continue;
      }
      crew.all([&](int thread) {
        for (int e = thread; e < kTile * kTile; e += kCrew) {
          const int i = e / kTile, j = e % kTile;
          p(i, j) = p(i, j) * dp(i, j) * v.scale;
        }
      });
      Math::template add<kTile, false>(crew, p, k, dq, nullptr);
    }
  crew.all([&](int thread) {
    each_of_rows<kTile>(thread, v.d, [&](int i, std::int64_t c) {
      if (first + i < v.seq) dqkv[v.q(batch, head) + (first + i) * v.width() + c] = from_f32<T>(dq.row(i)[c]);
    });
    if (thread < kTile && first + thread < v.seq)
      centers[v.stat(batch, head) + first + thread] = center[thread];
  });
}

/// A tile of keys of one key head: dk and dv, over its query heads and the queries that see it, in turn.
/// `slope_of(head)`. `shared`: as KeyMemory says.
template <class Math, int kTile>
struct KeyMemory {
  STRATA_HD KeyMemory(std::byte* shared, std::int64_t d)
      : memory(shared),
        k(memory.rows<kTile, typename Math::Rows>(d)),
        values(memory.rows<kTile, typename Math::Rows>(d)),
        q(memory.rows<kTile, typename Math::Rows>(d)),
        go(memory.rows<kTile, typename Math::Rows>(d)),
        dk(memory.rows<kTile, Tile>(d)),
        dv(memory.rows<kTile, Tile>(d)),
        p(memory.square<kTile>()),
        dp(memory.square<kTile>()) {}
  SharedMemory memory;
  typename Math::Rows k, values, q, go;
  Tile dk, dv;
  Square<kTile> p, dp;
};
template <class Math, int kTile, class Crew, class T, class Slope>
STRATA_LANES_BODY void attention_key_tile(const Crew& crew, std::byte* shared, const AttentionView<T>& v,
                                          std::int64_t batch, std::int64_t kv, std::int64_t key,
                                          const Slope& slope_of, const float* lse, const T* dout,
                                          const float* centers, T* dqkv) {
  const std::int64_t group = v.heads / v.kv_heads;
  const KeyMemory<Math, kTile> m(shared, v.d);
  const auto &k = m.k, &values = m.values, &q = m.q, &go = m.go;
  const Tile &dk = m.dk, &dv = m.dv;
  const Square<kTile>&p = m.p, &dp = m.dp;
  Math::template load<kTile>(crew, k, v.qkv + v.k(batch, kv), v.width(), key, v.seq);
  Math::template load<kTile>(crew, values, v.qkv + v.v(batch, kv), v.width(), key, v.seq);
  clear_tile<kTile>(crew, dk);
  clear_tile<kTile>(crew, dv);
  for (std::int64_t head = kv * group; head < (kv + 1) * group; ++head)
    for (std::int64_t first = v.causal ? key : 0; first < v.seq; first += kTile) {
      if (v.sees_none_from(batch, first, key + kTile)) break;
      Math::template load<kTile>(crew, q, v.qkv + v.q(batch, head), v.width(), first, v.seq);
      Math::template load<kTile>(crew, go, dout + v.out(batch, head), v.heads * v.d, first, v.seq);
      Math::template products<kTile>(crew, q, k, p);
      Math::template products<kTile>(crew, go, values, dp);
      probabilities<kTile>(crew, v, batch, head, first, key, slope_of(head), lse,
                           centers + v.stat(batch, head) + first, p, dp);
      Math::template add<kTile, true>(crew, p, go, dv, nullptr);
      crew.all([&](int thread) {
        for (int e = thread; e < kTile * kTile; e += kCrew) {
          const int i = e / kTile, j = e % kTile;
          p(i, j) = p(i, j) * dp(i, j) * v.scale;
        }
      });
      Math::template add<kTile, true>(crew, p, q, dk, nullptr);
    }
  crew.all([&](int thread) {
    each_of_rows<kTile>(thread, v.d, [&](int j, std::int64_t c) {
      if (key + j >= v.seq) return;
      dqkv[v.k(batch, kv) + (key + j) * v.width() + c] = from_f32<T>(dk.row(j)[c]);
      dqkv[v.v(batch, kv) + (key + j) * v.width() + c] = from_f32<T>(dv.row(j)[c]);
    });
  });
}

}  // namespace strata::kernels::detail
