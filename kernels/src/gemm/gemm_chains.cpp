#include "gemm/gemm_chains.h"

#include <algorithm>
#include <vector>

#include <strata/dispatch/rows.h>

#include "gemm/dnnl_sgemm.h"

namespace strata::kernels::detail {
namespace {

using Floats = std::vector<float>;

float* grown(Floats& floats, std::int64_t n) {
  floats.resize(std::max(floats.size(), static_cast<std::size_t>(n)));
  return floats.data();
}

/// The part of a GEMM that computes rows [row, row + m) and columns [column, column + n).
Gemm part_of(const Gemm& g, std::int64_t row, std::int64_t m, std::int64_t column, std::int64_t n) {
  Gemm part = g;
  part.m = m;
  part.n = n;
  part.a = static_cast<const float*>(g.a) + (g.trans_a ? row : row * g.lda);
  part.b = static_cast<const float*>(g.b) + (g.trans_b ? column * g.ldb : column);
  part.c = static_cast<float*>(g.c) + row * g.ldc + column;
  return part;
}

/// The same GEMM with a copy of A, which was stored as [k, m], as [m, k].
Gemm with_transposed_a(const Gemm& g, Floats& copy) {
  constexpr std::int64_t kBlock = 16;
  float* const to = grown(copy, g.m * g.k);
  const auto* const from = static_cast<const float*>(g.a);
  for (std::int64_t first = 0; first < g.m; first += kBlock)
    for (std::int64_t p = 0; p < g.k; ++p)
      for (std::int64_t i = first; i < std::min(g.m, first + kBlock); ++i)
        to[i * g.k + p] = from[p * g.lda + i];
  Gemm out = g;
  out.trans_a = false;
  out.a = to;
  out.lda = g.k;
  return out;
}

// One row or column is a product with a vector in oneDNN, which sums by lanes, and 2 to 15 rows of a
// transposed B are summed by two chains.
void chain_on_avx512(const Gemm& g) {
  if (g.m > 1 && g.n > 1 && !has_few_rows(g)) return call_dnnl_sgemm(g);
  static thread_local Floats copy;
  multiply_few_rows(g.trans_a ? with_transposed_a(g, copy) : g);
}

// Note [panels on AVX2]: oneDNN's kernel for AVX2 reads small operands where they are, also if k is not their
// contiguous dimension. Every element of a column is in another page then, or even in the same cache set, and
// it reaches less than half of its rate. Such a B is therefore copied into a panel, whose rows are an odd
// number of cache lines long.
Gemm with_copied_b(const Gemm& g, Floats& copy) {
  constexpr std::int64_t kLine = 16;
  const std::int64_t padded = (dispatch::ceil_div(g.n, kLine) | 1) * kLine;
  float* const to = grown(copy, g.k * padded);
  for (std::int64_t p = 0; p < g.k; ++p)
    std::copy_n(static_cast<const float*>(g.b) + p * g.ldb, g.n, to + p * padded);
  Gemm out = g;
  out.b = to;
  out.ldb = padded;
  return out;
}

// Note [rows on AVX2]: oneDNN's kernel for AVX2 computes six rows by sixteen columns at a time, and sums a
// last group of one, two or three rows, and other than sixteen columns, in another way; a call of more than
// 72 rows may be halved inside, which leaves such a group.
void chain_on_avx2(const Gemm& g) {
  constexpr std::int64_t kRowsTogether = 6, kFewestRows = 4, kMostRows = 72, kColumnsTogether = 16;
  const std::int64_t last = g.m % kRowsTogether;
  const std::int64_t rows = last > 0 && last < kFewestRows ? g.m - last : g.m;
  const std::int64_t columns = g.n - g.n % kColumnsTogether;
  for (std::int64_t row = 0; row < rows && columns > 0; row += kMostRows)
    call_dnnl_sgemm(part_of(g, row, std::min(kMostRows, rows - row), 0, columns));
  if (columns < g.n) multiply_few_rows(part_of(g, 0, rows, columns, g.n - columns));
  if (rows < g.m) multiply_few_rows(part_of(g, rows, g.m - rows, 0, g.n));
}

// A few rows of A^T are transposed at a time: attention has as many as a sequence has keys.
void chain_with_panels_on_avx2(const Gemm& g) {
  constexpr std::int64_t kRowsAtOnce = 252;  // a multiple of six
  static thread_local Floats a, b;
  const Gemm copied = g.trans_b ? g : with_copied_b(g, b);
  if (!g.trans_a) return chain_on_avx2(copied);
  for (std::int64_t row = 0; row < g.m; row += kRowsAtOnce)
    chain_on_avx2(with_transposed_a(part_of(copied, row, std::min(kRowsAtOnce, g.m - row), 0, g.n), a));
}

}  // namespace

void gemm_by_chains(const Gemm& g, bool on_avx2) {
  if (has_few_rows(g)) return multiply_few_rows(g);
  for (std::int64_t first = 0; first < g.k; first += kChain) {
    Gemm chain = g;
    chain.k = std::min(kChain, g.k - first);
    chain.accumulate = g.accumulate || first > 0;
    chain.a = static_cast<const float*>(g.a) + (g.trans_a ? first * g.lda : first);
    chain.b = static_cast<const float*>(g.b) + (g.trans_b ? first : first * g.ldb);
    on_avx2 ? chain_with_panels_on_avx2(chain) : chain_on_avx512(chain);
  }
}

}  // namespace strata::kernels::detail
