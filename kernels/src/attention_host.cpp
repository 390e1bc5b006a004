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

/// Sizes, and where the parts of a (batch, head) begin.
struct Geometry {
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
Geometry geometry(const Args& a) {
  const std::int64_t width = detail::row_length(a.qkv);
  const std::int64_t d = width / (a.shape.heads + 2 * a.shape.kv_heads);
  return {a.shape,
          d,
          width,
          a.shape.heads * d,
          detail::attention_pairs(detail::row_count(a.qkv), a.shape),
          a.shape.heads / a.shape.kv_heads,
          static_cast<float>(1.0 / std::sqrt(static_cast<double>(d))),
          detail::is_given(a.doc_start) ? a.doc_start.template as<std::int32_t>() : nullptr};
}

/// A block of query rows and the keys [low, high) that any of them sees.
struct Block {
  std::int64_t first, rows, low, high;
  std::int64_t keys() const { return high - low; }
};

class Blocks {
 public:
  Blocks(const Geometry& g, std::int64_t pair)
      : g_(g), starts_(g.doc_start == nullptr ? nullptr : g.doc_start + g.first_row(pair)) {}
  std::int64_t count() const { return detail::ceil_div(g_.shape.seq, kQueryRows); }
  Block at(std::int64_t i) const {
    const std::int64_t first = i * kQueryRows;
    const std::int64_t rows = std::min(kQueryRows, g_.shape.seq - first);
    // Documents lie one after the other, so the block's first row sees furthest back.
    return {first, rows, starts_ == nullptr ? 0 : starts_[first],
            g_.shape.causal ? first + rows : g_.shape.seq};
  }
  /// The keys of `block`, relative to its low end, that a row sees.
  std::int64_t begin(const Block& block, std::int64_t row) const {
    return starts_ == nullptr ? 0 : starts_[block.first + row] - block.low;
  }
  std::int64_t end(const Block& block, std::int64_t row) const {
    return g_.shape.causal ? block.first + row + 1 - block.low : block.keys();
  }

 private:
  const Geometry& g_;
  const std::int32_t* starts_;
};

/// slope * (key - query) for one head: row(n)[j] is key j of n, the last of which is the query itself.
class Bias {
 public:
  Bias(float* values, const AttentionHeads& shape, std::int64_t head) : seq_(shape.seq) {
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

/// scores[rows, keys] = x[rows, d] y[keys, d]^T.
Gemm scores_of(const Block& block, std::int64_t d, const float* x, std::int64_t ldx, const float* y,
               std::int64_t ldy, float* scores) {
  return {.trans_b = true,
          .m = block.rows,
          .n = block.keys(),
          .k = d,
          .a = x,
          .lda = ldx,
          .b = y,
          .ldb = ldy,
          .c = scores,
          .ldc = block.keys()};
}

void forward_head(const AttentionForwardArgs& a, const Geometry& g, std::int64_t pair, std::int64_t i,
                  const Bias& bias, float* scores) {
  const detail::RowTable& table = detail::row_table();
  const Blocks blocks(g, pair);
  const float* qkv = a.qkv.as<float>();
  float* lse = a.lse.as<float>() + g.lse(pair, i);
  for (std::int64_t b = 0; b < blocks.count(); ++b) {
    const Block block = blocks.at(b);
    detail::gemm_one_thread(scores_of(block, g.d, qkv + g.q(pair, i) + block.first * g.width, g.width,
                                      qkv + g.k(pair) + block.low * g.width, g.width, scores));
    for (std::int64_t r = 0; r < block.rows; ++r) {
      float* row = scores + r * block.keys();
      const std::int64_t begin = blocks.begin(block, r), end = blocks.end(block, r), n = end - begin;
      float scale = g.scale;
      if (const float* add = bias.row(n); add != nullptr) {
        table.scale_add(row + begin, g.scale, add, n);
        scale = 1.0f;
      }
      lse[block.first + r] = table.attention_softmax(row + begin, scale, n);
      zero_outside(row, begin, end, block.keys());
    }
    detail::gemm_one_thread({.m = block.rows,
                             .n = g.d,
                             .k = block.keys(),
                             .a = scores,
                             .lda = block.keys(),
                             .b = qkv + g.v(pair) + block.low * g.width,
                             .ldb = g.width,
                             .c = a.out.as<float>() + g.out(pair, i) + block.first * g.out_width,
                             .ldc = g.out_width});
  }
}

/// p becomes the probabilities of a block, dp the gradient of its scores.
void backward_scores(const AttentionBackwardArgs& a, const Geometry& g, std::int64_t pair, std::int64_t i,
                     const Block& block, const Bias& bias, float* p, float* dp) {
  const detail::RowTable& table = detail::row_table();
  const Blocks blocks(g, pair);
  const float* qkv = a.qkv.as<float>();
  const std::int64_t at = g.out(pair, i) + block.first * g.out_width;
  const float* out = a.out.as<float>() + at;
  const float* dout = a.dout.as<float>() + at;
  const float* lse = a.lse.as<float>() + g.lse(pair, i) + block.first;
  detail::gemm_one_thread(scores_of(block, g.d, qkv + g.q(pair, i) + block.first * g.width, g.width,
                                    qkv + g.k(pair) + block.low * g.width, g.width, p));
  detail::gemm_one_thread(
      scores_of(block, g.d, dout, g.out_width, qkv + g.v(pair) + block.low * g.width, g.width, dp));
  for (std::int64_t r = 0; r < block.rows; ++r) {
    const std::int64_t begin = blocks.begin(block, r), end = blocks.end(block, r), n = end - begin;
    float* p_row = p + r * block.keys();
    float* dp_row = dp + r * block.keys();
    const float d = table.dot(dout + r * g.out_width, out + r * g.out_width, g.d);
    float scale = g.scale;
    if (const float* add = bias.row(n); add != nullptr) {
      table.scale_add(p_row + begin, g.scale, add, n);
      scale = 1.0f;
    }
    table.attention_softmax_backward(p_row + begin, dp_row + begin, lse[r], d, scale, g.scale, n);
    zero_outside(p_row, begin, end, block.keys());
    zero_outside(dp_row, begin, end, block.keys());
  }
}

/// grad[keys, d] (+)= scores[rows, keys]^T x[rows, d].
Gemm key_grad_of(const Block& block, std::int64_t d, const float* scores, const float* x, std::int64_t ldx,
                 float* grad, std::int64_t ld, bool add) {
  return {.trans_a = true,
          .m = block.keys(),
          .n = d,
          .k = block.rows,
          .a = scores,
          .lda = block.keys(),
          .b = x,
          .ldb = ldx,
          .c = grad,
          .ldc = ld,
          .accumulate = add};
}

// The first head's last block sees the last keys, so it writes dk and dv there, and the others add to them;
// with documents it may not see all keys, and the rest is zeroed first.
void backward_head(const AttentionBackwardArgs& a, const Geometry& g, std::int64_t pair, std::int64_t i,
                   const Bias& bias, float* p, float* dp) {
  const Blocks blocks(g, pair);
  const float* qkv = a.qkv.as<float>();
  float* dqkv = a.dqkv.as<float>();
  for (std::int64_t b = blocks.count() - 1; b >= 0; --b) {
    const Block block = blocks.at(b);
    const bool first = i == 0 && b == blocks.count() - 1;
    for (std::int64_t row = 0; first && row < block.low; ++row)
      for (const std::int64_t at : {g.k(pair), g.v(pair)}) std::fill_n(dqkv + at + row * g.width, g.d, 0.0f);
    backward_scores(a, g, pair, i, block, bias, p, dp);
    const std::int64_t rows_at = block.first * g.width, keys_at = block.low * g.width;
    detail::gemm_one_thread({.m = block.rows,
                             .n = g.d,
                             .k = block.keys(),
                             .a = dp,
                             .lda = block.keys(),
                             .b = qkv + g.k(pair) + keys_at,
                             .ldb = g.width,
                             .c = dqkv + g.q(pair, i) + rows_at,
                             .ldc = g.width});
    detail::gemm_one_thread(key_grad_of(block, g.d, dp, qkv + g.q(pair, i) + rows_at, g.width,
                                        dqkv + g.k(pair) + keys_at, g.width, !first));
    detail::gemm_one_thread(key_grad_of(block, g.d, p,
                                        a.dout.as<float>() + g.out(pair, i) + block.first * g.out_width,
                                        g.out_width, dqkv + g.v(pair) + keys_at, g.width, !first));
  }
}

/// Calls body(pair, query head of its group, bias of that head, scratch) for all, a slot's in order.
template <class Body>
void for_heads(const Geometry& g, BufferView workspace, int matrices, ThreadPool& pool, const Body& body) {
  const std::int64_t slots = detail::attention_slots(g.pairs);
  const std::int64_t floats = detail::attention_slot_floats(g.shape, matrices);
  const std::int64_t bias_at = floats - g.shape.seq;
  pool.parallel_for(slots, [&](std::int64_t slot) {
    float* scratch = reinterpret_cast<float*>(workspace.data) + slot * floats;
    for (std::int64_t pair = slot; pair < g.pairs; pair += slots)
      for (std::int64_t i = 0; i < g.group; ++i)
        body(pair, i, Bias(scratch + bias_at, g.shape, g.head(pair, i)), scratch);
  });
}

}  // namespace

float alibi_slope(std::int64_t head, std::int64_t heads) noexcept {
  std::int64_t power = 1;
  while (2 * power <= heads) power *= 2;
  const double base = head < power ? -8.0 / static_cast<double>(power) : -4.0 / static_cast<double>(power);
  const std::int64_t exponent = head < power ? head + 1 : 2 * (head - power) + 1;
  return static_cast<float>(std::exp2(base * static_cast<double>(exponent)));
}

void attention_forward_host(const AttentionForwardArgs& a, ThreadPool& pool) {
  const Geometry g = geometry(a);
  for_heads(g, a.workspace, 1, pool,
            [&](std::int64_t pair, std::int64_t i, const Bias& bias, float* scratch) {
              forward_head(a, g, pair, i, bias, scratch);
            });
}

void attention_backward_host(const AttentionBackwardArgs& a, ThreadPool& pool) {
  const Geometry g = geometry(a);
  const std::int64_t scores = std::min(kQueryRows, g.shape.seq) * g.shape.seq;
  for_heads(g, a.workspace, 2, pool,
            [&](std::int64_t pair, std::int64_t i, const Bias& bias, float* scratch) {
              backward_head(a, g, pair, i, bias, scratch, scratch + scores);
            });
}

}  // namespace strata::kernels
