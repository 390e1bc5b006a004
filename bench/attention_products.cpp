#include "attention_products.h"

#include <omp.h>

#include <algorithm>

#include <oneapi/dnnl/dnnl.h>

namespace strata::bench {
namespace {

struct Matrix {
  float* data;
  std::int64_t ld;
  bool transposed = false;
};

// c[m, n] = or += a[m, k] b[k, n], on the calling thread.
void multiply(std::int64_t m, std::int64_t n, std::int64_t k, Matrix a, Matrix b, Matrix c,
              bool add = false) {
  dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, k, 1.0f, a.data, a.ld, b.data, b.ld,
             add ? 1.0f : 0.0f, c.data, c.ld);
}

}  // namespace

AttentionProducts::AttentionProducts(std::int64_t sequences, std::int64_t seq, std::int64_t heads,
                                     std::int64_t head_dim)
    : sequences_(sequences), seq_(seq), heads_(heads), head_dim_(head_dim) {
  const auto rows = static_cast<std::size_t>(sequences * seq),
             width = static_cast<std::size_t>(heads * head_dim);
  qkv_.assign(rows * 3 * width, 0.01f);
  gradients_ = qkv_;
  out_.assign(rows * width, 0.01f);
}

void AttentionProducts::run(ThreadPool& pool) {
  constexpr std::int64_t kRows = 64;
  const std::int64_t d = head_dim_, out_ld = heads_ * d, ld = 3 * out_ld;
  pool.parallel_for(sequences_ * heads_, [&](std::int64_t i) {
    omp_set_num_threads(1);
    const std::int64_t first = i / heads_ * seq_, column = i % heads_ * d;
    float *const q = qkv_.data() + first * ld + column, *const k = q + out_ld, *const v = k + out_ld,
                 *const dq = gradients_.data() + first * ld + column, *const dk = dq + out_ld,
                 *const dv = dk + out_ld, *const out = out_.data() + first * out_ld + column;
    std::vector<float> p(static_cast<std::size_t>(kRows * seq_), 0.01f), dp = p;
    for (std::int64_t at = 0; at < seq_; at += kRows) {
      const std::int64_t rows = std::min(kRows, seq_ - at), keys = at + rows;
      const Matrix scores{p.data(), keys}, d_scores{dp.data(), keys};
      const Matrix own_q{q + at * ld, ld}, own_out{out + at * out_ld, out_ld}, own_dq{dq + at * ld, ld};
      for (int pass = 0; pass < 2; ++pass) multiply(rows, keys, d, own_q, {k, ld, true}, scores);
      multiply(rows, d, keys, scores, {v, ld}, own_out);
      multiply(rows, keys, d, own_out, {v, ld, true}, d_scores);
      multiply(rows, d, keys, d_scores, {k, ld}, own_dq);
      multiply(keys, d, rows, {dp.data(), keys, true}, own_q, {dk, ld}, true);
      multiply(keys, d, rows, {p.data(), keys, true}, own_out, {dv, ld}, true);
    }
  });
}

}  // namespace strata::bench
