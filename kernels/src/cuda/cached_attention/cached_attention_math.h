#pragma once

#include <cstdint>

#include <strata/simd/math/elementary.h>
#include <strata/simd/math/host_device.h>

#include "attention/merge_heads.h"
#include "cuda/row_math.h"

/// The elements of attention over a KV cache: the operations of cached_attention.cpp and row_kernels.h
/// in the same order. Its sums are in cached_attention_blocks.h.
namespace strata::kernels::detail {

/// The score with ALiBi of key j for the query at position n - 1. It is already scaled, so the softmax must
/// not scale it again.
STRATA_HD float alibi_score(float score, float scale, float slope, std::int64_t j, std::int64_t n) {
  return score * scale + slope * static_cast<float>(j - (n - 1));
}
/// cap * tanh(scale * score / cap).
STRATA_HD float capped_score(float score, float scale, float cap) {
  return simd::tanh_of(score * (scale / cap)) * cap;
}
/// Pointers and sizes of a call with stored dtype T.
template <class T>
struct CachedView {
  const T* qkv;
  const std::int32_t* positions;
  const std::int32_t* slots;
  T* keys;
  T* values;
  T* out;
  std::int64_t rows, heads, kv_heads, capacity, d;
  bool alibi;
  std::int64_t window = 0;
  float softcap = 0;
  const T* sinks = nullptr;  // null: none

  /// What a sink leaves of the weights of a head's keys, whose log-sum-exp is `lse`.
  STRATA_HD float weight_of_keys(std::int64_t head, float lse) const {
    return merge_lse(lse, to_f32(sinks[head])).a;
  }
  /// The window hides so many of the first `all` positions, which end at the query's own.
  STRATA_HD std::int64_t first_visible(std::int64_t all) const {
    return window > 0 && all > window ? all - window : 0;
  }
  /// Whether score() already applies the scale, so that the softmax must not.
  STRATA_HD bool scales_scores() const { return alibi || softcap > 0; }
  /// The score of key j of the n visible keys, the last of which is the query's own; `product` is q . k.
  STRATA_HD float score(float product, float scale, float slope, std::int64_t j, std::int64_t n) const {
    if (softcap > 0) return capped_score(product, scale, softcap);
    return alibi ? alibi_score(product, scale, slope, j, n) : product;
  }
  /// Query heads of a key head. A division of 64-bit numbers would be a function call.
  STRATA_HD int group() const { return static_cast<int>(heads) / static_cast<int>(kv_heads); }
  STRATA_HD std::int64_t width() const { return (heads + 2 * kv_heads) * d; }
  /// The offset in keys and values of position 0 of a slot's key head.
  STRATA_HD std::int64_t cache_of(std::int64_t slot, std::int64_t kv) const {
    return (slot * kv_heads + kv) * capacity * d;
  }
};

/// Writes element `i` of row `r`'s keys, and of its values, to the cache.
template <class T>
STRATA_HD void cached_store(const CachedView<T>& v, std::int64_t r, int i) {
  const std::int64_t slot = v.slots[r];
  if (slot < 0) return;
  const int d = static_cast<int>(v.d);
  const std::int64_t at = v.cache_of(slot, i / d) + v.positions[r] * v.d + i % d;
  const T* row = v.qkv + r * v.width() + v.heads * v.d;
  v.keys[at] = row[i];
  v.values[at] = row[v.kv_heads * v.d + i];
}

}  // namespace strata::kernels::detail
