#pragma once

#include <algorithm>
#include <cstdint>

#include <strata/dispatch/rows.h>
#include <strata/kernels/attention.h>

#include "attention/attention_workspace.h"
#include "attention/head_dim.h"
#include "row_table.h"

// Attention on the host is divided into blocks of query rows of one head, and the keys that they see.

namespace strata::kernels::detail {

/// Sizes of the op, and the offsets of the tensors of a (batch, key head) pair.
struct AttentionGeometry {
  AttentionHeads shape;
  std::int64_t d;
  std::int64_t queries, keys;  ///< queries and keys of a sequence
  /// The length of a row of the tensor with queries, and of a row of the tensor with keys and values.
  std::int64_t width, kv_width;
  std::int64_t keys_before;  ///< heads before the first key head in such a row
  std::int64_t out_width, pairs, group;
  float scale;
  const std::int32_t* doc_start;

  std::int64_t first_query(std::int64_t pair) const { return pair / shape.kv_heads * queries; }
  std::int64_t head(std::int64_t pair, std::int64_t i) const { return pair % shape.kv_heads * group + i; }
  std::int64_t q(std::int64_t pair, std::int64_t i) const {
    return first_query(pair) * width + head(pair, i) * d;
  }
  std::int64_t k(std::int64_t pair) const {
    return pair / shape.kv_heads * keys * kv_width + (keys_before + pair % shape.kv_heads) * d;
  }
  std::int64_t v(std::int64_t pair) const { return k(pair) + shape.kv_heads * d; }
  std::int64_t out(std::int64_t pair, std::int64_t i) const {
    return first_query(pair) * out_width + head(pair, i) * d;
  }
  std::int64_t lse(std::int64_t pair, std::int64_t i) const {
    return first_query(pair) * shape.heads + head(pair, i) * queries;
  }
};

template <class Args>
AttentionGeometry geometry(const Args& a) {
  const bool has_kv = dispatch::is_present(a.kv);
  const std::int64_t width = dispatch::row_length(a.qkv);
  const std::int64_t d = head_dim_of(a);
  return {a.shape,
          d,
          a.shape.queries.tokens(a.shape.seq),
          a.shape.keys.tokens(a.shape.seq),
          width,
          has_kv ? dispatch::row_length(a.kv) : width,
          has_kv ? 0 : a.shape.heads,
          a.shape.heads * d,
          sequences_of(a) * a.shape.kv_heads,
          a.shape.heads / a.shape.kv_heads,
          attention_scale(a.shape, d),
          dispatch::is_present(a.doc_start) ? a.doc_start.template as<std::int32_t>() : nullptr};
}

/// A block of query rows of one document and the range of keys [low, high) that any of them sees. Both are
/// numbers among the tokens of a sequence that are here.
struct QueryBlock {
  std::int64_t first = 0, rows = 0, low = 0, high = 0;
  std::int64_t before_low = 0;  ///< keys of the document before `low`
  std::int64_t keys() const { return high - low; }
  std::int64_t end() const { return first + rows; }
};

/// Divides the queries into blocks of kQueryRows positions from the start of each document, so that a
/// document is computed in the same blocks wherever it is packed.
class QueryBlocks {
 public:
  QueryBlocks(const AttentionGeometry& g, std::int64_t pair)
      : g_(g), starts_(g.doc_start == nullptr ? nullptr : g.doc_start + g.first_query(pair)) {}
  /// The block with a query.
  QueryBlock with(std::int64_t query) const {
    std::int64_t first = query, end = query + 1;
    while (first > 0 && !begins_block(first)) --first;
    while (end < g_.queries && !begins_block(end)) ++end;
    const std::int64_t low = first_key(first);
    return {first, end - first, low, std::max(low, end_of_keys(end - 1)),
            std::max<std::int64_t>(0, low - g_.shape.keys.before(start_of(query)))};
  }
  /// The range [begin, end) of the keys of `block` that a row sees, relative to block.low.
  std::int64_t begin(const QueryBlock& block, std::int64_t row) const {
    return first_key(block.first + row) - block.low;
  }
  std::int64_t end(const QueryBlock& block, std::int64_t row) const {
    return std::max(begin(block, row), end_of_keys(block.first + row) - block.low);
  }
  std::int64_t position(const QueryBlock& block, std::int64_t row) const {
    return g_.shape.queries.at(block.first + row);
  }

 private:
  std::int64_t start_of(std::int64_t query) const { return starts_ == nullptr ? 0 : starts_[query]; }
  bool begins_block(std::int64_t query) const {
    const std::int64_t position = g_.shape.queries.at(query);
    return position != g_.shape.queries.at(query - 1) + 1 || (position - start_of(query)) % kQueryRows == 0;
  }
  std::int64_t first_key(std::int64_t query) const {
    const std::int64_t start = start_of(query);
    const std::int64_t window = g_.shape.window;
    return g_.shape.keys.before(window == 0 ? start
                                            : std::max(start, g_.shape.queries.at(query) - window + 1));
  }
  std::int64_t end_of_keys(std::int64_t query) const {
    return g_.shape.causal ? g_.shape.keys.before(g_.shape.queries.at(query) + 1) : g_.keys;
  }
  const AttentionGeometry& g_;
  const std::int32_t* starts_;
};

/// slope * (key - query) for one head, by the distance of their positions.
class AlibiBias {
 public:
  AlibiBias(float* values, const AttentionHeads& shape, std::int64_t head) : shape_(shape) {
    if (!shape.alibi) return;
    const float slope = alibi_slope(shape, head);
    for (std::int64_t j = 0; j < shape.seq; ++j) values[j] = slope * static_cast<float>(j - (shape.seq - 1));
    values_ = values;
  }
  bool is_given() const { return values_ != nullptr; }
  /// scores = scale * scores + bias, of keys [begin, begin + n) of a query at `position`.
  void scale_add(float* scores, float scale, std::int64_t begin, std::int64_t n,
                 std::int64_t position) const {
    while (n > 0) {
      const std::int64_t run = std::min(n, following(begin));
      row_table().scale_add(scores, scale, values_ + shape_.keys.at(begin) - position + shape_.seq - 1, run);
      scores += run;
      begin += run;
      n -= run;
    }
  }

 private:
  /// How many keys from `key` on have positions that follow each other.
  std::int64_t following(std::int64_t key) const {
    const TokenRuns& keys = shape_.keys;
    return keys.all() ? shape_.seq - key : key < keys.length[0] ? keys.length[0] - key : keys.tokens(0) - key;
  }
  const AttentionHeads& shape_;
  const float* values_ = nullptr;
};

}  // namespace strata::kernels::detail
