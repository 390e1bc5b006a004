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
// none is in such a group: calls are of at most 72 rows, since more may be halved inside, and of numbers of
// rows that leave no such group. A few rows, as when tokens are generated, are filled up with rows of zeros
// instead of being divided, since each call reads all of B.
constexpr std::int64_t kRowsTogether = 6, kFewestRows = 4, kMostRows = 72, kMostFilledRows = 16;

std::int64_t filled_up(std::int64_t rows) noexcept {
  const std::int64_t last = rows % kRowsTogether;
  return last == 0 ? rows : rows - last + std::max(last, kFewestRows);
}

// How many of the rows that are left the next call computes.
std::int64_t rows_of_call(std::int64_t left) noexcept {
  const std::int64_t last = left % kRowsTogether;
  if (left <= kMostFilledRows) return left;
  if (last == 0 || last >= kFewestRows || left > 2 * kMostRows) return std::min(left, kMostRows);
  if (last == 1) return std::min(left - kRowsTogether - last, kMostRows);
  return (left / 2 - kFewestRows) / kRowsTogether * kRowsTogether +
         kFewestRows;  // two calls of about as many
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
    part.m = rows_of_call(g.m - row);
    part.a = static_cast<const float*>(g.a) + row * g.lda;
    part.c = static_cast<float*>(g.c) + row * g.ldc;
    const std::int64_t rows = filled_up(part.m);
    rows == part.m ? call_dnnl_sgemm(part) : call_with_rows_of_zeros(part, rows);
  }
}

// Note [panels on AVX2]: oneDNN's kernel for AVX2 reads small operands where they are, also if k is not their
// contiguous dimension. Every element of a column is in another page then, or even in the same cache set, and
// it reaches less than half of its rate. Parts of such operands are therefore copied into panels, whose rows
// are an odd number of cache lines long. Which parts depends on k only, so a row's bits do not change.
constexpr std::int64_t kPanelDepth = 512, kPanelRows = 256, kLine = 16;

struct Panel {
  const float* data;
  std::int64_t ld;
};
Panel copied(const float* from, std::int64_t ld, std::int64_t depth, std::int64_t columns, Floats& into) {
  const std::int64_t padded = (dispatch::ceil_div(columns, kLine) | 1) * kLine;
  into.resize(std::max(into.size(), static_cast<std::size_t>(depth * padded)));
  copy_rows(from, ld, into.data(), padded, depth, columns);
  return {into.data(), padded};
}

// A is stored as [k, m]: panels of as many of its columns as a tile has rows.
void call_by_columns_of_a(const Gemm& g) {
  static thread_local Floats panel;
  Gemm part = g;
  for (std::int64_t row = 0; row < g.m; row += part.m) {
    part.m = std::min(g.m - row, kPanelRows);
    const Panel a = copied(static_cast<const float*>(g.a) + row, g.lda, g.k, part.m, panel);
    part.a = a.data;
    part.lda = a.ld;
    part.c = static_cast<float*>(g.c) + row * g.ldc;
    call_dnnl_sgemm(part);
  }
}

}  // namespace

void gemm_on_avx2(const Gemm& g) noexcept {
  if (!g.trans_a && g.trans_b) return call_by_rows(g);
  static thread_local Floats panel;
  const std::int64_t panels = dispatch::ceil_div(g.k, kPanelDepth);
  const std::int64_t depth = round_up(dispatch::ceil_div(g.k, panels), std::int64_t{8});
  for (std::int64_t first = 0; first < g.k; first += depth) {
    Gemm part = g;
    part.k = std::min(depth, g.k - first);
    part.accumulate = g.accumulate || first > 0;
    part.a = static_cast<const float*>(g.a) + (g.trans_a ? first * g.lda : first);
    const float* const b = static_cast<const float*>(g.b) + (g.trans_b ? first : first * g.ldb);
    const Panel of_b = g.trans_b ? Panel{b, g.ldb} : copied(b, g.ldb, part.k, g.n, panel);
    part.b = of_b.data;
    part.ldb = of_b.ld;
    g.trans_a ? call_by_columns_of_a(part) : call_by_rows(part);
  }
}

}  // namespace strata::kernels::detail
