#include <algorithm>
#include <limits>
#include <utility>

#include <strata/simd/convert.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/attention.h>
#include <strata/runtime/assert.h>
#include <strata/runtime/threads/thread_pool.h>

#include "attention/attention_workspace.h"
#include "attention/merge_heads.h"
#include "attention/query_blocks.h"
#include "dtype_dispatch.h"
#include "few_rows_table.h"
#include "gemm/gemm.h"
#include "row_table.h"

namespace strata::kernels {
namespace {

using detail::AlibiBias;
using detail::AttentionGeometry;
using detail::Gemm;
using detail::geometry;
using detail::QueryBlock;
using detail::QueryBlocks;

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
  HeadScratch(float* at, const AttentionGeometry& g) : at_(at), d_(g.d) {}
  /// Returns the head of `n` rows at `from` itself if it is stored in f32, otherwise scratch memory for them.
  template <class T>
  HeadRows allocate(T* from, std::int64_t ld, std::int64_t n) {
    if constexpr (dtype_of<T> == DType::f32)
      return {from, ld};
    else
      return {std::exchange(at_, at_ + n * d_), d_};
  }
  /// The same, with the head's values converted to f32.
  template <class T>
  HeadRows load(T* from, std::int64_t ld, std::int64_t n) {
    const HeadRows rows = allocate(from, ld, n);
    for (std::int64_t i = 0; i < n && dtype_of<T> != DType::f32; ++i)
      simd::widen(from + i * ld, rows.row(i), d_);
    return rows;
  }
  /// Rounds rows from allocate(into, ld, n) to `into`; does nothing if `into` is f32.
  template <class T>
  void store(const HeadRows& rows, T* into, std::int64_t ld, std::int64_t n) const {
    for (std::int64_t i = 0; i < n && dtype_of<T> != DType::f32; ++i)
      simd::narrow(rows.row(i), into + i * ld, d_);
  }

 private:
  float* at_;
  std::int64_t d_;
};

/// Zeroes the rows of queries that see no key, and of keys that no query sees.
void clear_rows(const HeadRows& rows, std::int64_t begin, std::int64_t end, std::int64_t d) {
  for (std::int64_t row = begin; row < end; ++row) std::fill_n(rows.row(row), d, 0.0f);
}

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

/// to[rows of the block, d] = scores[rows, keys] x[keys, d]. Its chains (gemm_chains.h) begin with every
/// kChain-th key of the document, so that a row's bits do not depend on the keys that only others of its
/// block see, which have scores of zero.
void multiply_keys(const QueryBlock& block, std::int64_t d, const float* scores, const HeadRows& x,
                   const HeadRows& to) {
  for (std::int64_t key = 0, n = 0; key < block.keys(); key += n) {
    n = std::min(block.keys() - key, detail::kChain - (block.before_low + key) % detail::kChain);
    detail::gemm_one_thread({.m = block.rows,
                             .n = d,
                             .k = n,
                             .a = scores + key,
                             .lda = block.keys(),
                             .b = x.row(block.low + key),
                             .ldb = x.ld,
                             .c = to.row(block.first),
                             .ldc = to.ld,
                             .accumulate = key > 0});
  }
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
  const float* sink;  // null: none
};

/// Turns the scores of the n keys that a row sees into weights, and returns their log-sum-exp, with the sink.
float softmax_of(const ForwardHead& head, float* scores, float scale, std::int64_t n) {
  const float lse = detail::row_table().attention_softmax(scores, scale, n);
  if (head.sink == nullptr) return lse;
  const detail::MergedWeights w = detail::merge_lse(lse, *head.sink);
  for (std::int64_t j = 0; j < n; ++j) scores[j] *= w.a;
  return w.lse;
}

void forward_head(const AttentionGeometry& g, const QueryBlocks& blocks, const ForwardHead& head,
                  const AlibiBias& bias, float* scores) {
  const detail::RowTable& table = detail::row_table();
  for (QueryBlock block{}; block.end() < g.queries;) {
    block = blocks.with(block.end());
    if (block.keys() == 0) {
      clear_rows(head.out, block.first, block.first + block.rows, g.d);
      std::fill_n(head.lse + block.first, block.rows, -std::numeric_limits<float>::infinity());
      continue;
    }
    detail::gemm_one_thread(scores_gemm(block, g.d, head.q, head.k, scores));
    for (std::int64_t r = 0; r < block.rows; ++r) {
      float* row = scores + r * block.keys();
      const std::int64_t begin = blocks.begin(block, r), end = blocks.end(block, r), n = end - begin;
      if (n == 0) {
        std::fill_n(row, block.keys(), 0.0f);
        head.lse[block.first + r] = -std::numeric_limits<float>::infinity();
        continue;
      }
      float scale = g.scale;
      if (bias.is_given()) {
        bias.scale_add(row + begin, g.scale, block.low + begin, n, blocks.position(block, r));
        scale = 1.0f;
      } else if (g.shape.softcap > 0) {
        table.softcap(row + begin, g.scale, g.shape.softcap, n);
        scale = 1.0f;
      }
      head.lse[block.first + r] = softmax_of(head, row + begin, scale, n);
      zero_outside(row, begin, end, block.keys());
    }
    multiply_keys(block, g.d, scores, head.v, head.out);
  }
}

struct BackwardHead {
  HeadRows q, k, v, dout, dq, dk, dv;
  const float* lse;
  const float* delta;  // null: not given
  float* delta_out;    // null: not asked for
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
    if (n == 0) {
      std::fill_n(p_row, block.keys(), 0.0f);
      std::fill_n(dp_row, block.keys(), 0.0f);
      continue;
    }
    float scale = g.scale;
    if (bias.is_given()) {
      bias.scale_add(p_row + begin, g.scale, block.low + begin, n, blocks.position(block, r));
      scale = 1.0f;
    }
    const float lse = head.lse[block.first + r];
    const float* const center = head.delta == nullptr ? nullptr : head.delta + block.first + r;
    const float delta =
        g.shape.softcap > 0
            ? table.softcap_softmax_backward(p_row + begin, dp_row + begin, lse, g.scale, g.shape.softcap,
                                             center, n)
            : table.attention_softmax_backward(p_row + begin, dp_row + begin, lse, scale, g.scale, center, n);
    if (head.delta_out != nullptr) head.delta_out[block.first + r] = delta;
    zero_outside(p_row, begin, end, block.keys());
    zero_outside(dp_row, begin, end, block.keys());
  }
}

// Blocks are processed from last to first. The first query head's last block sees the last keys, so it writes
// dk and dv there, and all other blocks add to them. The gradients of keys that it does not see are set to
// zero first: earlier ones, with packed documents or a window, and later ones than all queries that are here.
void backward_head(const AttentionGeometry& g, const QueryBlocks& blocks, const BackwardHead& head,
                   bool first_head, const AlibiBias& bias, float* p, float* dp) {
  for (QueryBlock block{.first = g.queries}; block.first > 0;) {
    block = blocks.with(block.first - 1);
    const bool first = first_head && block.end() == g.queries;
    for (const HeadRows& grad : {head.dk, head.dv}) {
      if (!first) break;
      clear_rows(grad, 0, block.low, g.d);
      clear_rows(grad, block.high, g.keys, g.d);
    }
    if (block.keys() == 0) {
      clear_rows(head.dq, block.first, block.first + block.rows, g.d);
      continue;
    }
    backward_scores(g, blocks, block, head, bias, p, dp);
    multiply_keys(block, g.d, dp, head.k, head.dq);
    detail::gemm_one_thread(kv_gradient_gemm(block, g.d, dp, head.q, head.dk, !first));
    detail::gemm_one_thread(kv_gradient_gemm(block, g.d, p, head.dout, head.dv, !first));
  }
}

/// Calls body(pair, scratch) for all (batch, key head) pairs; the pairs of one slot are processed in order.
template <class Body>
void for_pairs(const AttentionGeometry& g, BufferView workspace, std::int64_t slot_floats, ThreadPool& pool,
               const Body& body) {
  const std::int64_t slots = detail::attention_slots(g.pairs);
  STRATA_ASSERT(workspace.bytes >= static_cast<std::size_t>(slots * slot_floats) * sizeof(float),
                "attention on the host has a workspace of ", workspace.bytes, " bytes for ", slots,
                " slots of ", slot_floats, " floats");
  pool.parallel_for(slots, [&](std::int64_t slot) {
    float* scratch = reinterpret_cast<float*>(workspace.data) + slot * slot_floats;
    for (std::int64_t pair = slot; pair < g.pairs; pair += slots) body(pair, scratch);
  });
}

/// The tensor with the keys and values of `a`.
template <class Args>
const TensorView& kv_of(const Args& a) {
  return dispatch::is_present(a.kv) ? a.kv : a.qkv;
}

template <class T, class Out>
void forward(const AttentionForwardArgs& a, ThreadPool& pool) {
  const AttentionGeometry g = geometry(a);
  const detail::AttentionSlot slot = detail::attention_forward_slot(g.shape, a.qkv.dtype, g.d);
  T *const q = a.qkv.as<T>(), *const kv = kv_of(a).as<T>();
  for_pairs(g, a.workspace, slot.floats, pool, [&](std::int64_t pair, float* scratch) {
    const QueryBlocks blocks(g, pair);
    HeadScratch keys(scratch + slot.heads, g);
    const HeadRows k = keys.load(kv + g.k(pair), g.kv_width, g.keys),
                   v = keys.load(kv + g.v(pair), g.kv_width, g.keys);
    for (std::int64_t i = 0; i < g.group; ++i) {
      HeadScratch queries = keys;  // all query heads use the same memory
      Out* out = a.out.as<Out>() + g.out(pair, i);
      const bool has_sink = dispatch::is_present(a.sinks);
      const float sink = has_sink ? to_f32(a.sinks.as<T>()[g.head(pair, i)]) : 0.0f;
      const ForwardHead head = {queries.load(q + g.q(pair, i), g.width, g.queries),
                                k,
                                v,
                                queries.allocate(out, g.out_width, g.queries),
                                a.lse.as<float>() + g.lse(pair, i),
                                has_sink ? &sink : nullptr};
      forward_head(g, blocks, head, AlibiBias(scratch + slot.bias, g.shape, g.head(pair, i)), scratch);
      queries.store(head.out, out, g.out_width, g.queries);
    }
  });
}

template <class T>
void backward(const AttentionBackwardArgs& a, ThreadPool& pool) {
  const AttentionGeometry g = geometry(a);
  const detail::AttentionSlot slot = detail::attention_backward_slot(g.shape, a.qkv.dtype, g.d);
  const std::int64_t scores = slot.heads / 2;
  const bool has_kv = dispatch::is_present(a.kv);
  T *const q = a.qkv.as<T>(), *const kv = kv_of(a).as<T>();
  T *const dq = a.dqkv.as<T>(), *const dkv = (has_kv ? a.dkv : a.dqkv).as<T>();
  for_pairs(g, a.workspace, slot.floats, pool, [&](std::int64_t pair, float* scratch) {
    const QueryBlocks blocks(g, pair);
    HeadScratch keys(scratch + slot.heads, g);
    const HeadRows k = keys.load(kv + g.k(pair), g.kv_width, g.keys),
                   v = keys.load(kv + g.v(pair), g.kv_width, g.keys);
    const HeadRows dk = keys.allocate(dkv + g.k(pair), g.kv_width, g.keys),
                   dv = keys.allocate(dkv + g.v(pair), g.kv_width, g.keys);
    for (std::int64_t i = 0; i < g.group; ++i) {
      HeadScratch queries = keys;
      const std::int64_t at = g.q(pair, i), out = g.out(pair, i);
      const BackwardHead head = {
          queries.load(q + at, g.width, g.queries),
          k,
          v,
          queries.load(a.dout.as<T>() + out, g.out_width, g.queries),
          queries.allocate(dq + at, g.width, g.queries),
          dk,
          dv,
          a.lse.as<float>() + g.lse(pair, i),
          dispatch::is_present(a.delta) ? a.delta.as<float>() + g.lse(pair, i) : nullptr,
          dispatch::is_present(a.delta_out) ? a.delta_out.as<float>() + g.lse(pair, i) : nullptr};
      backward_head(g, blocks, head, i == 0, AlibiBias(scratch + slot.bias, g.shape, g.head(pair, i)),
                    scratch, scratch + scores);
      queries.store(head.dq, dq + at, g.width, g.queries);
    }
    // The sum over the group's query heads, rounded once.
    keys.store(dk, dkv + g.k(pair), g.kv_width, g.keys);
    keys.store(dv, dkv + g.v(pair), g.kv_width, g.keys);
  });
}

}  // namespace

void attention_forward_host(const AttentionForwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.qkv.dtype, [&]<class T>(std::type_identity<T>) {
    if (a.out.dtype == DType::f32)
      forward<T, float>(a, pool);
    else
      forward<T, T>(a, pool);
  });
}

void attention_backward_host(const AttentionBackwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.qkv.dtype, [&]<class T>(std::type_identity<T>) { backward<T>(a, pool); });
}

}  // namespace strata::kernels
