#include <algorithm>
#include <vector>

#include <strata/dispatch/rows.h>
#include <strata/runtime/units.h>

#include "gemm/dnnl_sgemm.h"

namespace strata::kernels::detail {
namespace {

using Floats = std::vector<float>;

void copy_rows(const float* from, std::int64_t ld_from, float* to, std::int64_t ld_to, std::int64_t rows,
               std::int64_t columns) {
  for (std::int64_t i = 0; i < rows; ++i) std::copy_n(from + i * ld_from, columns, to + i * ld_to);
}

// Note [rows on AVX2]: oneDNN's kernel for AVX2 computes six rows at a time, and sums a row of the last one,
// two or three in another order. A row would have other bits in another batch. All rows have those of six if
// none is in such a group: calls are of at most 72 rows, since more may be halved inside, and rows of zeros
// make four of a smaller last group.
constexpr std::int64_t kRowsTogether = 6, kFewestRows = 4, kMostRows = 72;

std::int64_t filled_up(std::int64_t rows) noexcept {
  const std::int64_t last = rows % kRowsTogether;
  return last == 0 ? rows : rows - last + std::max(last, kFewestRows);
}

// The last rows of A and of C may be followed by nothing, so that the call is of copies.
void call_with_rows_of_zeros(const Gemm& g, std::int64_t rows) {
  static thread_local Floats copies;
  copies.assign(static_cast<std::size_t>(rows * (g.k + g.n)), 0.0f);
  float* const a = copies.data();
  float* const c = a + rows * g.k;
  copy_rows(static_cast<const float*>(g.a), g.lda, a, g.k, g.m, g.k);
  if (g.accumulate) copy_rows(static_cast<const float*>(g.c), g.ldc, c, g.n, g.m, g.n);
  Gemm whole = g;
  whole.m = rows;
  whole.a = a;
  whole.lda = g.k;
  whole.c = c;
  whole.ldc = g.n;
  call_dnnl_sgemm(whole);
  copy_rows(c, g.n, static_cast<float*>(g.c), g.ldc, g.m, g.n);
}

void call_by_rows(const Gemm& g) {
  Gemm part = g;
  for (std::int64_t row = 0; row < g.m; row += part.m) {
    part.m = std::min(g.m - row, kMostRows);
    part.a = static_cast<const float*>(g.a) + row * g.lda;
    part.c = static_cast<float*>(g.c) + row * g.ldc;
    const std::int64_t rows = filled_up(part.m);
    rows == part.m ? call_dnnl_sgemm(part) : call_with_rows_of_zeros(part, rows);
  }
}

// Note [panels on AVX2]: oneDNN's kernel for AVX2 reads small operands where they are, also if k is not their
// contiguous dimension. Every element of a column is in another page then, or even in the same cache set, and
// it reaches less than half of its rate. So that parts of such operands are copied into panels with short
// rows, of a length that is no power of two. Which parts depends on k only, so a row's bits do not change.
constexpr std::int64_t kPanelDepth = 512, kPadding = 16;

void copy_panel(const void*& operand, std::int64_t& ld, std::int64_t first, std::int64_t depth,
                std::int64_t columns, Floats& panel) {
  const std::int64_t padded = columns + kPadding;
  panel.resize(std::max(panel.size(), static_cast<std::size_t>(depth * padded)));
  copy_rows(static_cast<const float*>(operand) + first * ld, ld, panel.data(), padded, depth, columns);
  operand = panel.data();
  ld = padded;
}

}  // namespace

void gemm_on_avx2(const Gemm& g) noexcept {
  if (!g.trans_a && g.trans_b) return call_by_rows(g);
  static thread_local Floats a_panel, b_panel;
  const std::int64_t panels = dispatch::ceil_div(g.k, kPanelDepth);
  const std::int64_t depth = round_up(dispatch::ceil_div(g.k, panels), std::int64_t{8});
  for (std::int64_t first = 0; first < g.k; first += depth) {
    Gemm part = g;
    part.k = std::min(depth, g.k - first);
    part.accumulate = g.accumulate || first > 0;
    if (g.trans_a)
      copy_panel(part.a, part.lda, first, part.k, g.m, a_panel);
    else
      part.a = static_cast<const float*>(g.a) + first;
    if (g.trans_b)
      part.b = static_cast<const float*>(g.b) + first;
    else
      copy_panel(part.b, part.ldb, first, part.k, g.n, b_panel);
    g.trans_a ? call_dnnl_sgemm(part) : call_by_rows(part);
  }
}

}  // namespace strata::kernels::detail
