#pragma once

#include <cstdint>

#include <strata/simd/math/elementary.h>
#include <strata/simd/math/host_device.h>
#include <strata/dispatch/cuda/lanes.h>

#include "cuda/row_math.h"

/// The arithmetic of attention over a KV cache: the operations of cached_attention_kernels.h and
/// row_kernels.h in the same order. `Lanes` is HalfWarp (lanes.h), or EmulatedHalfWarp in tests.
namespace strata::kernels::detail {

/// The dot product of query and key, in every lane.
template <class Lanes, class T>
STRATA_DEVICE_INLINE float cached_score(const Lanes& lanes, const T* query, const T* key, std::int64_t d) {
  return lanes.template sum<float>(d, [&](std::int64_t i) { return to_f32(query[i]) * to_f32(key[i]); });
}
/// The score with ALiBi of key j for the query at position n - 1. It is already scaled, so the softmax must
/// not scale it again.
STRATA_HD float alibi_score(float score, float scale, float slope, std::int64_t j, std::int64_t n) {
  return score * scale + slope * static_cast<float>(j - (n - 1));
}
/// cap * tanh(scale * score / cap).
STRATA_HD float capped_score(float score, float scale, float cap) {
  return simd::tanh_of(score * (scale / cap)) * cap;
}
/// Turns the n scores in `x`, times `scale`, into softmax weights in place.
template <class Lanes>
STRATA_DEVICE_INLINE void cached_softmax(const Lanes& lanes, float* x, float scale, std::int64_t n) {
  const float row_max = max_of_row(lanes, x, n) * scale;
  const float total = lanes.template sum<float>(n, [&](std::int64_t i) {
    x[i] = simd::exp_of(x[i] * scale - row_max);
    return x[i];
  });
  const float inverse = 1.0f / total;
  lanes.for_each(n, [&](std::int64_t i) { x[i] = x[i] * inverse; });
}
/// One element of the output.
template <class T>
STRATA_HD T cached_weighted_sum(const float* weights, const T* values, std::int64_t element, std::int64_t d,
                                std::int64_t n) {
  float sum = 0.0f;
  for (std::int64_t j = 0; j < n; ++j) sum = sum + weights[j] * to_f32(values[j * d + element]);
  return from_f32<T>(sum);
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
  STRATA_HD std::int64_t width() const { return (heads + 2 * kv_heads) * d; }
  /// The offset in keys and values of position 0 of a slot's key head.
  STRATA_HD std::int64_t cache_of(std::int64_t slot, std::int64_t kv) const {
    return (slot * kv_heads + kv) * capacity * d;
  }
};

/// Writes element `i` of row `r`'s keys, and of its values, to the cache.
template <class T>
STRATA_HD void cached_store(const CachedView<T>& v, std::int64_t r, std::int64_t i) {
  const std::int64_t slot = v.slots[r];
  if (slot < 0) return;
  const std::int64_t at = v.cache_of(slot, i / v.d) + v.positions[r] * v.d + i % v.d;
  const T* row = v.qkv + r * v.width() + v.heads * v.d;
  v.keys[at] = row[i];
  v.values[at] = row[v.kv_heads * v.d + i];
}

}  // namespace strata::kernels::detail
