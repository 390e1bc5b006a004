#include <algorithm>
#include <cmath>

#include <strata/kernels/attention.h>

#include "attention_blocks.h"
#include "gemm.h"
#include "op.h"
#include "row_table.h"

namespace strata::kernels {
namespace {

using detail::Gemm;
using detail::kQueryRows;

/// One (batch, head): offsets of its first row in the packed and in the plain tensors, and of its lse.
struct Pair {
  std::int64_t packed, plain, lse;
};

struct Geometry {
  std::int64_t heads, seq, h, d, pairs;
  float scale;
  Pair pair(std::int64_t i) const {
    const std::int64_t batch = i / heads;
    const std::int64_t head = i % heads;
    return {batch * seq * 3 * h + head * d, batch * seq * h + head * d, i * seq};
  }
};

template <class Args>
Geometry geometry(const Args& a) {
  const std::int64_t h = detail::row_length(a.qkv) / 3;
  const std::int64_t d = h / a.heads;
  return {a.heads,
          a.seq,
          h,
          d,
          detail::attention_pairs(detail::row_count(a.qkv), a.heads, a.seq),
          static_cast<float>(1.0 / std::sqrt(static_cast<double>(d)))};
}

/// A block of query rows and the keys it can see.
struct Block {
  std::int64_t first, rows, keys;
  bool causal;
  std::int64_t keys_of(std::int64_t row) const { return causal ? first + row + 1 : keys; }
};

Block block_at(std::int64_t i, std::int64_t seq, bool causal) {
  const std::int64_t first = i * kQueryRows;
  const std::int64_t rows = std::min(kQueryRows, seq - first);
  return {first, rows, causal ? first + rows : seq, causal};
}

/// scores[rows, keys] = x[rows, d] y[keys, d]^T.
Gemm scores_of(const Block& block, const Geometry& g, const float* x, std::int64_t ldx, const float* y,
               std::int64_t ldy, float* scores) {
  return {.trans_b = true,
          .m = block.rows,
          .n = block.keys,
          .k = g.d,
          .a = x,
          .lda = ldx,
          .b = y,
          .ldb = ldy,
          .c = scores,
          .ldc = block.keys};
}

void forward_pair(const AttentionForwardArgs& a, const Geometry& g, const Pair& pair, float* scores) {
  const detail::RowTable& table = detail::row_table();
  const float* q = a.qkv.as<float>() + pair.packed;
  const float* k = q + g.h;
  const float* v = k + g.h;
  const std::int64_t ld = 3 * g.h;
  for (std::int64_t i = 0; i * kQueryRows < g.seq; ++i) {
    const Block block = block_at(i, g.seq, a.causal);
    detail::gemm_one_thread(scores_of(block, g, q + block.first * ld, ld, k, ld, scores));
    for (std::int64_t r = 0; r < block.rows; ++r) {
      float* row = scores + r * block.keys;
      const std::int64_t seen = block.keys_of(r);
      a.lse.as<float>()[pair.lse + block.first + r] = table.attention_softmax(row, g.scale, seen);
      std::fill(row + seen, row + block.keys, 0.0f);
    }
    detail::gemm_one_thread({.m = block.rows,
                             .n = g.d,
                             .k = block.keys,
                             .a = scores,
                             .lda = block.keys,
                             .b = v,
                             .ldb = ld,
                             .c = a.out.as<float>() + pair.plain + block.first * g.h,
                             .ldc = g.h});
  }
}

void backward_pair(const AttentionBackwardArgs& a, const Geometry& g, const Pair& pair, float* p, float* dp) {
  const detail::RowTable& table = detail::row_table();
  const std::int64_t ld = 3 * g.h;
  const float* q = a.qkv.as<float>() + pair.packed;
  const float* k = q + g.h;
  const float* v = k + g.h;
  float* dq = a.dqkv.as<float>() + pair.packed;
  float* dk = dq + g.h;
  float* dv = dk + g.h;
  // Last block first: it sees every key, so it writes all of dk and dv, and the others add to them.
  const std::int64_t blocks = detail::ceil_div(g.seq, kQueryRows);
  for (std::int64_t i = blocks - 1; i >= 0; --i) {
    const Block block = block_at(i, g.seq, a.causal);
    const float* q_block = q + block.first * ld;
    const float* out = a.out.as<float>() + pair.plain + block.first * g.h;
    const float* dout = a.dout.as<float>() + pair.plain + block.first * g.h;
    const float* lse = a.lse.as<float>() + pair.lse + block.first;
    detail::gemm_one_thread(scores_of(block, g, q_block, ld, k, ld, p));
    detail::gemm_one_thread(scores_of(block, g, dout, g.h, v, ld, dp));
    for (std::int64_t r = 0; r < block.rows; ++r) {
      const std::int64_t seen = block.keys_of(r);
      const std::int64_t at = r * block.keys;
      const float d = table.dot(dout + r * g.h, out + r * g.h, g.d);
      table.attention_softmax_backward(p + at, dp + at, lse[r], d, g.scale, seen);
      std::fill(p + at + seen, p + at + block.keys, 0.0f);
      std::fill(dp + at + seen, dp + at + block.keys, 0.0f);
    }
    const bool add = i + 1 < blocks;
    detail::gemm_one_thread({.m = block.rows,
                             .n = g.d,
                             .k = block.keys,
                             .a = dp,
                             .lda = block.keys,
                             .b = k,
                             .ldb = ld,
                             .c = dq + block.first * ld,
                             .ldc = ld});
    detail::gemm_one_thread({.trans_a = true,
                             .m = block.keys,
                             .n = g.d,
                             .k = block.rows,
                             .a = dp,
                             .lda = block.keys,
                             .b = q_block,
                             .ldb = ld,
                             .c = dk,
                             .ldc = ld,
                             .accumulate = add});
    detail::gemm_one_thread({.trans_a = true,
                             .m = block.keys,
                             .n = g.d,
                             .k = block.rows,
                             .a = p,
                             .lda = block.keys,
                             .b = dout,
                             .ldb = g.h,
                             .c = dv,
                             .ldc = ld,
                             .accumulate = add});
  }
}

}  // namespace

void attention_forward_host(const AttentionForwardArgs& a, ThreadPool& pool) {
  const Geometry g = geometry(a);
  const std::int64_t slots = detail::attention_slots(g.pairs);
  const std::int64_t slot_floats = std::min(kQueryRows, g.seq) * g.seq;
  pool.parallel_for(slots, [&](std::int64_t slot) {
    float* scores = reinterpret_cast<float*>(a.workspace.data) + slot * slot_floats;
    for (std::int64_t i = slot; i < g.pairs; i += slots) forward_pair(a, g, g.pair(i), scores);
  });
}

void attention_backward_host(const AttentionBackwardArgs& a, ThreadPool& pool) {
  const Geometry g = geometry(a);
  const std::int64_t slots = detail::attention_slots(g.pairs);
  const std::int64_t slot_floats = std::min(kQueryRows, g.seq) * g.seq;
  pool.parallel_for(slots, [&](std::int64_t slot) {
    float* p = reinterpret_cast<float*>(a.workspace.data) + slot * 2 * slot_floats;
    for (std::int64_t i = slot; i < g.pairs; i += slots) backward_pair(a, g, g.pair(i), p, p + slot_floats);
  });
}

}  // namespace strata::kernels
