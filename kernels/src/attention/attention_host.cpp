#include <algorithm>
#include <utility>

#include <strata/cpuopt/convert.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/attention.h>
#include <strata/runtime/threads/thread_pool.h>

#include "attention/attention_workspace.h"
#include "attention/head_dim.h"
#include "dtype_dispatch.h"
#include "gemm/gemm.h"
#include "row_table.h"

namespace strata::kernels {
namespace {

using detail::Gemm;
using detail::kQueryRows;

/// Sizes of the op, and the offsets of the tensors of a (batch, key head) pair.
struct AttentionGeometry {
  AttentionHeads shape;
  std::int64_t d, width, out_width, pairs, group;
  float scale;
  const std::int32_t* doc_start;

  std::int64_t first_row(std::int64_t pair) const { return pair / shape.kv_heads * shape.seq; }
  std::int64_t head(std::int64_t pair, std::int64_t i) const { return pair % shape.kv_heads * group + i; }
  std::int64_t q(std::int64_t pair, std::int64_t i) const {
    return first_row(pair) * width + head(pair, i) * d;
  }
  std::int64_t k(std::int64_t pair) const {
    return first_row(pair) * width + (shape.heads + pair % shape.kv_heads) * d;
  }
  std::int64_t v(std::int64_t pair) const { return k(pair) + shape.kv_heads * d; }
  std::int64_t out(std::int64_t pair, std::int64_t i) const {
    return first_row(pair) * out_width + head(pair, i) * d;
  }
  std::int64_t lse(std::int64_t pair, std::int64_t i) const {
    return first_row(pair) * shape.heads + head(pair, i) * shape.seq;
  }
};

template <class Args>
AttentionGeometry geometry(const Args& a) {
  const std::int64_t width = dispatch::row_length(a.qkv);
  const std::int64_t d = detail::head_dim(a.qkv, a.shape);
  return {a.shape,
          d,
          width,
          a.shape.heads * d,
          detail::attention_pairs(dispatch::row_count(a.qkv), a.shape),
          a.shape.heads / a.shape.kv_heads,
          attention_scale(a.shape, d),
          dispatch::is_present(a.doc_start) ? a.doc_start.template as<std::int32_t>() : nullptr};
}

/// A block of query rows and the range of keys [low, high) that any of them sees.
struct QueryBlock {
  std::int64_t first, rows, low, high;
  std::int64_t keys() const { return high - low; }
};

class QueryBlocks {
 public:
  QueryBlocks(const AttentionGeometry& g, std::int64_t pair)
      : g_(g), starts_(g.doc_start == nullptr ? nullptr : g.doc_start + g.first_row(pair)) {}
  std::int64_t count() const { return dispatch::ceil_div(g_.shape.seq, kQueryRows); }
  QueryBlock at(std::int64_t i) const {
    const std::int64_t first = i * kQueryRows;
    const std::int64_t rows = std::min(kQueryRows, g_.shape.seq - first);
    // Documents are consecutive, so the block's first row sees the earliest key.
    return {first, rows, first_key(first), g_.shape.causal ? first + rows : g_.shape.seq};
  }
  /// The range [begin, end) of the keys of `block` that a row sees, relative to block.low.
  std::int64_t begin(const QueryBlock& block, std::int64_t row) const {
    return first_key(block.first + row) - block.low;
  }
  std::int64_t end(const QueryBlock& block, std::int64_t row) const {
    return g_.shape.causal ? block.first + row + 1 - block.low : block.keys();
  }

 private:
  std::int64_t first_key(std::int64_t query) const {
    const std::int64_t start = starts_ == nullptr ? 0 : starts_[query];
    return g_.shape.window == 0 ? start : std::max(start, query - g_.shape.window + 1);
  }
  const AttentionGeometry& g_;
  const std::int32_t* starts_;
};

/// slope * (key - query) for one head: row(n)[j] is the bias of key j of n keys, the last of which is at the
/// query's own position.
class AlibiBias {
 public:
  AlibiBias(float* values, const AttentionHeads& shape, std::int64_t head) : seq_(shape.seq) {
    if (!shape.alibi) return;
    const float slope = alibi_slope(head, shape.heads);
    for (std::int64_t j = 0; j < seq_; ++j) values[j] = slope * static_cast<float>(j - (seq_ - 1));
    values_ = values;
  }
  const float* row(std::int64_t n) const { return values_ == nullptr ? nullptr : values_ + (seq_ - n); }

 private:
  std::int64_t seq_;
  const float* values_ = nullptr;
};

void zero_outside(float* row, std::int64_t begin, std::int64_t end, std::int64_t n) {
  std::fill(row, row + begin, 0.0f);
  std::fill(row + end, row + n, 0.0f);
}

/// The f32 rows of one head.
struct HeadRows {
  float* data;
  std::int64_t ld;
  float* row(std::int64_t i) const { return data + i * ld; }
};

/// A workspace slot's memory for the rows of heads, allocated from front to back.
class HeadScratch {
 public:
  HeadScratch(float* at, const AttentionGeometry& g) : at_(at), seq_(g.shape.seq), d_(g.d) {}
  /// Returns the head at `from` itself if it is stored in f32, otherwise scratch memory for its rows.
  template <class T>
  HeadRows allocate(T* from, std::int64_t ld) {
    if constexpr (dtype_of<T> == DType::f32)
      return {from, ld};
    else
      return {std::exchange(at_, at_ + seq_ * d_), d_};
  }
  /// The same, with the head's values converted to f32.
  template <class T>
  HeadRows load(T* from, std::int64_t ld) {
    const HeadRows rows = allocate(from, ld);
    for (std::int64_t i = 0; i < seq_ && dtype_of<T> != DType::f32; ++i)
      cpuopt::widen(from + i * ld, rows.row(i), d_);
    return rows;
  }
  /// Rounds rows from allocate(into, ld) to `into`; does nothing if `into` is f32.
  template <class T>
  void store(const HeadRows& rows, T* into, std::int64_t ld) const {
    for (std::int64_t i = 0; i < seq_ && dtype_of<T> != DType::f32; ++i)
      cpuopt::narrow(rows.row(i), into + i * ld, d_);
  }

 private:
  float* at_;
  std::int64_t seq_, d_;
};

/// scores[rows, keys] = x[rows of the block, d] y[keys, d]^T.
Gemm scores_gemm(const QueryBlock& block, std::int64_t d, const HeadRows& x, const HeadRows& y,
                 float* scores) {
  return {.trans_b = true,
          .m = block.rows,
          .n = block.keys(),
          .k = d,
          .a = x.row(block.first),
          .lda = x.ld,
          .b = y.row(block.low),
          .ldb = y.ld,
          .c = scores,
          .ldc = block.keys()};
}

/// to[rows of the block, d] = scores[rows, keys] x[keys, d].
Gemm query_rows_gemm(const QueryBlock& block, std::int64_t d, const float* scores, const HeadRows& x,
                     const HeadRows& to) {
  return {.m = block.rows,
          .n = d,
          .k = block.keys(),
          .a = scores,
          .lda = block.keys(),
          .b = x.row(block.low),
          .ldb = x.ld,
          .c = to.row(block.first),
          .ldc = to.ld};
}

/// to[keys, d] (+)= scores[rows, keys]^T x[rows of the block, d].
Gemm kv_gradient_gemm(const QueryBlock& block, std::int64_t d, const float* scores, const HeadRows& x,
                      const HeadRows& to, bool add) {
  return {.trans_a = true,
          .m = block.keys(),
          .n = d,
          .k = block.rows,
          .a = scores,
          .lda = block.keys(),
          .b = x.row(block.first),
          .ldb = x.ld,
          .c = to.row(block.low),
          .ldc = to.ld,
          .accumulate = add};
}

struct ForwardHead {
  HeadRows q, k, v, out;
  float* lse;
};

void forward_head(const AttentionGeometry& g, const QueryBlocks& blocks, const ForwardHead& head,
                  const AlibiBias& bias, float* scores) {
  const detail::RowTable& table = detail::row_table();
  for (std::int64_t b = 0; b < blocks.count(); ++b) {
    const QueryBlock block = blocks.at(b);
    detail::gemm_one_thread(scores_gemm(block, g.d, head.q, head.k, scores));
    for (std::int64_t r = 0; r < block.rows; ++r) {
      float* row = scores + r * block.keys();
      const std::int64_t begin = blocks.begin(block, r), end = blocks.end(block, r), n = end - begin;
      float scale = g.scale;
      if (const float* add = bias.row(n); add != nullptr) {
        table.scale_add(row + begin, g.scale, add, n);
        scale = 1.0f;
      } else if (g.shape.softcap > 0) {
        table.softcap(row + begin, g.scale, g.shape.softcap, n);
        scale = 1.0f;
      }
      head.lse[block.first + r] = table.attention_softmax(row + begin, scale, n);
      zero_outside(row, begin, end, block.keys());
    }
    detail::gemm_one_thread(query_rows_gemm(block, g.d, scores, head.v, head.out));
  }
}

struct BackwardHead {
  HeadRows q, k, v, dout, dq, dk, dv;
  const float* lse;
};

/// Computes the probabilities of a block in p and the gradient of its scores in dp.
void backward_scores(const AttentionGeometry& g, const QueryBlocks& blocks, const QueryBlock& block,
                     const BackwardHead& head, const AlibiBias& bias, float* p, float* dp) {
  const detail::RowTable& table = detail::row_table();
  detail::gemm_one_thread(scores_gemm(block, g.d, head.q, head.k, p));
  detail::gemm_one_thread(scores_gemm(block, g.d, head.dout, head.v, dp));
  for (std::int64_t r = 0; r < block.rows; ++r) {
    const std::int64_t begin = blocks.begin(block, r), end = blocks.end(block, r), n = end - begin;
    float* p_row = p + r * block.keys();
    float* dp_row = dp + r * block.keys();
    float scale = g.scale;
    if (const float* add = bias.row(n); add != nullptr) {
      table.scale_add(p_row + begin, g.scale, add, n);
      scale = 1.0f;
    }
    const float lse = head.lse[block.first + r];
    if (g.shape.softcap > 0)
      table.softcap_softmax_backward(p_row + begin, dp_row + begin, lse, g.scale, g.shape.softcap, n);
    else
      table.attention_softmax_backward(p_row + begin, dp_row + begin, lse, scale, g.scale, n);
    zero_outside(p_row, begin, end, block.keys());
    zero_outside(dp_row, begin, end, block.keys());
  }
}

// Blocks are processed from last to first. The first query head's last block sees the last keys, so it writes
// dk and dv there, and all other blocks add to them. With packed documents or a window that block may not see
// the earlier keys, whose gradients are set to zero first.
void backward_head(const AttentionGeometry& g, const QueryBlocks& blocks, const BackwardHead& head,
                   bool first_head, const AlibiBias& bias, float* p, float* dp) {
  for (std::int64_t b = blocks.count() - 1; b >= 0; --b) {
    const QueryBlock block = blocks.at(b);
    const bool first = first_head && b == blocks.count() - 1;
    for (std::int64_t row = 0; first && row < block.low; ++row)
      for (const HeadRows& grad : {head.dk, head.dv}) std::fill_n(grad.row(row), g.d, 0.0f);
    backward_scores(g, blocks, block, head, bias, p, dp);
    detail::gemm_one_thread(query_rows_gemm(block, g.d, dp, head.k, head.dq));
    detail::gemm_one_thread(kv_gradient_gemm(block, g.d, dp, head.q, head.dk, !first));
    detail::gemm_one_thread(kv_gradient_gemm(block, g.d, p, head.dout, head.dv, !first));
  }
}

/// Calls body(pair, scratch) for all (batch, key head) pairs; the pairs of one slot are processed in order.
template <class Body>
void for_pairs(const AttentionGeometry& g, BufferView workspace, std::int64_t slot_floats, ThreadPool& pool,
               const Body& body) {
  const std::int64_t slots = detail::attention_slots(g.pairs);
  pool.parallel_for(slots, [&](std::int64_t slot) {
    float* scratch = reinterpret_cast<float*>(workspace.data) + slot * slot_floats;
    for (std::int64_t pair = slot; pair < g.pairs; pair += slots) body(pair, scratch);
  });
}

template <class T>
void forward(const AttentionForwardArgs& a, ThreadPool& pool) {
  const AttentionGeometry g = geometry(a);
  const detail::AttentionSlot slot = detail::attention_forward_slot(g.shape, a.qkv.dtype, g.d);
  T* qkv = a.qkv.as<T>();
  for_pairs(g, a.workspace, slot.floats, pool, [&](std::int64_t pair, float* scratch) {
    const QueryBlocks blocks(g, pair);
    HeadScratch keys(scratch + slot.heads, g);
    const HeadRows k = keys.load(qkv + g.k(pair), g.width), v = keys.load(qkv + g.v(pair), g.width);
    for (std::int64_t i = 0; i < g.group; ++i) {
      HeadScratch queries = keys;  // all query heads use the same memory
      T* out = a.out.as<T>() + g.out(pair, i);
      const ForwardHead head = {queries.load(qkv + g.q(pair, i), g.width), k, v,
                                queries.allocate(out, g.out_width), a.lse.as<float>() + g.lse(pair, i)};
      forward_head(g, blocks, head, AlibiBias(scratch + slot.bias, g.shape, g.head(pair, i)), scratch);
      queries.store(head.out, out, g.out_width);
    }
  });
}

template <class T>
void backward(const AttentionBackwardArgs& a, ThreadPool& pool) {
  const AttentionGeometry g = geometry(a);
  const detail::AttentionSlot slot = detail::attention_backward_slot(g.shape, a.qkv.dtype, g.d);
  const std::int64_t scores = slot.heads / 2;
  T* qkv = a.qkv.as<T>();
  T* dqkv = a.dqkv.as<T>();
  for_pairs(g, a.workspace, slot.floats, pool, [&](std::int64_t pair, float* scratch) {
    const QueryBlocks blocks(g, pair);
    HeadScratch keys(scratch + slot.heads, g);
    const HeadRows k = keys.load(qkv + g.k(pair), g.width), v = keys.load(qkv + g.v(pair), g.width);
    const HeadRows dk = keys.allocate(dqkv + g.k(pair), g.width),
                   dv = keys.allocate(dqkv + g.v(pair), g.width);
    for (std::int64_t i = 0; i < g.group; ++i) {
      HeadScratch queries = keys;
      const std::int64_t q = g.q(pair, i), out = g.out(pair, i);
      const BackwardHead head = {
          queries.load(qkv + q, g.width),      k,  v,  queries.load(a.dout.as<T>() + out, g.out_width),
          queries.allocate(dqkv + q, g.width), dk, dv, a.lse.as<float>() + g.lse(pair, i)};
      backward_head(g, blocks, head, i == 0, AlibiBias(scratch + slot.bias, g.shape, g.head(pair, i)),
                    scratch, scratch + scores);
      queries.store(head.dq, dqkv + q, g.width);
    }
    keys.store(dk, dqkv + g.k(pair), g.width);  // the sum over the group's query heads, rounded once
    keys.store(dv, dqkv + g.v(pair), g.width);
  });
}

}  // namespace

void attention_forward_host(const AttentionForwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.qkv.dtype, [&]<class T>(std::type_identity<T>) { forward<T>(a, pool); });
}

void attention_backward_host(const AttentionBackwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.qkv.dtype, [&]<class T>(std::type_identity<T>) { backward<T>(a, pool); });
}

}  // namespace strata::kernels
