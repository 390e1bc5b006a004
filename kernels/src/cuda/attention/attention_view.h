#pragma once

#include <cstdint>

#include <strata/kernels/attention_heads.h>
#include <strata/runtime/float16.h>
#include <strata/simd/math/elementary.h>
#include <strata/simd/math/host_device.h>

#include "attention/merge_heads.h"

namespace strata::kernels::detail {

/// A view of packed qkv rows q | k | v (strata/kernels/attention.h), or of rows q and rows k | v of some
/// tokens of each sequence. Queries and keys are numbered among the tokens that are there. `doc_start` may be
/// null. Functions that accept a `slope` expect 0 where there is no ALiBi. width(), token(), q(), k() and v()
/// are for packed rows of all tokens.
template <class T>
struct AttentionView {
  const T* qkv;
  const std::int32_t* doc_start;
  std::int64_t heads, kv_heads, d, seq;
  float scale;
  bool causal;
  std::int64_t window = 0;
  float softcap = 0;
  const T* kv = nullptr;  // null: in qkv
  TokenRuns queries = {}, keys = {};
  const T* sinks = nullptr;  // null: none

  /// What a sink makes of the output and the lse of a query.
  STRATA_HD MergedWeights with_sink(std::int64_t head, float lse) const {
    return sinks == nullptr ? MergedWeights{1.0f, 0.0f, lse} : merge_lse(lse, to_f32(sinks[head]));
  }
  STRATA_HD std::int64_t width() const { return (heads + 2 * kv_heads) * d; }
  STRATA_HD std::int64_t token(std::int64_t batch, std::int64_t place) const { return batch * seq + place; }
  STRATA_HD std::int64_t q(std::int64_t batch, std::int64_t head) const {
    return token(batch, 0) * width() + head * d;
  }
  STRATA_HD std::int64_t k(std::int64_t batch, std::int64_t kv_head) const {
    return token(batch, 0) * width() + (heads + kv_head) * d;
  }
  STRATA_HD std::int64_t v(std::int64_t batch, std::int64_t kv_head) const {
    return k(batch, kv_head) + kv_heads * d;
  }

  STRATA_HD std::int64_t q_rows() const { return queries.tokens(seq); }
  STRATA_HD std::int64_t k_rows() const { return keys.tokens(seq); }
  STRATA_HD std::int64_t q_width() const { return kv == nullptr ? width() : heads * d; }
  STRATA_HD std::int64_t kv_width() const { return kv == nullptr ? width() : 2 * kv_heads * d; }
  /// Offsets of a head's queries, keys and values.
  STRATA_HD std::int64_t q_at(std::int64_t batch, std::int64_t head) const {
    return batch * q_rows() * q_width() + head * d;
  }
  STRATA_HD std::int64_t k_at(std::int64_t batch, std::int64_t kv_head) const {
    return batch * k_rows() * kv_width() + ((kv == nullptr ? heads : 0) + kv_head) * d;
  }
  STRATA_HD std::int64_t v_at(std::int64_t batch, std::int64_t kv_head) const {
    return k_at(batch, kv_head) + kv_heads * d;
  }
  STRATA_HD const T* kv_data() const { return kv == nullptr ? qkv : kv; }

  STRATA_HD std::int64_t out(std::int64_t batch, std::int64_t head) const {
    return batch * q_rows() * heads * d + head * d;
  }
  STRATA_HD std::int64_t stat(std::int64_t batch, std::int64_t head) const {
    return batch * q_rows() * heads + head * q_rows();  // [batch, heads, queries]
  }
  STRATA_HD bool is_visible(std::int64_t batch, std::int64_t query, std::int64_t key) const {
    if (query >= q_rows() || key >= k_rows()) return false;
    const std::int64_t at = queries.at(query), key_at = keys.at(key);
    if (causal && key_at > at) return false;
    if (window > 0 && at - key_at >= window) return false;
    return doc_start == nullptr || key_at >= doc_start[batch * q_rows() + query];
  }
  /// The first key that `query` (< q_rows()) sees, if it sees any.
  STRATA_HD std::int64_t first_visible_key(std::int64_t batch, std::int64_t query) const {
    const std::int64_t start = doc_start == nullptr ? 0 : doc_start[batch * q_rows() + query];
    const std::int64_t of_window = window > 0 ? queries.at(query) - window + 1 : start;
    return keys.before(of_window > start ? of_window : start);
  }
  /// Whether no query from `query` on sees a key below `end`. Starts of documents and windows never decrease
  /// from query to query, so it is enough to look at the first one.
  STRATA_HD bool keys_below_are_masked(std::int64_t batch, std::int64_t query, std::int64_t end) const {
    return first_visible_key(batch, query) >= end;
  }
  /// tanh(scale * (q . k) / softcap), where `product` is q . k; softcap times this is the capped score.
  STRATA_HD float capped(float product) const { return simd::tanh_of(product * (scale / softcap)); }
  STRATA_HD float score(float product, float slope, std::int64_t query, std::int64_t key) const {
    if (softcap > 0) return capped(product) * softcap;
    return product * scale + slope * static_cast<float>(keys.at(key) - queries.at(query));
  }
};

}  // namespace strata::kernels::detail
