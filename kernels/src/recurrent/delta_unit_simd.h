#pragma once

#include <strata/simd/simd.h>

#include "recurrent/delta_products.h"
#include "recurrent/delta_rows.h"

/// The Unit of the delta rule (delta_rows.h) for an instruction set, one thread of the host.
namespace strata::kernels::STRATA_ISA {
namespace {

using detail::Product;
using detail::UnitTriangle;
using simd::STRATA_ISA::f32splat;
using simd::STRATA_ISA::f32x16;
using simd::STRATA_ISA::load_lanes;
using simd::STRATA_ISA::store_lanes;

// The rows and the runs of 16 columns of c whose sums are in registers at a time.
constexpr int kTileRows = f32x16::kParts <= 2 ? 4 : f32x16::kParts == 4 ? 2 : 1;
constexpr int kTileColumns = f32x16::kParts == 1 ? 4 : 1;

template <int kColumns>
STRATA_HD int lanes_of(int lanes, int column) {
  return column + 1 < kColumns ? 16 : lanes;
}

/// The terms [begin, end) of kRows x kColumns runs of elements from (i, j) on; the last run has `lanes`.
template <int kRows, int kColumns>
STRATA_HD void product_tile(const Product& p, std::int64_t i, std::int64_t j, std::int64_t begin,
                            std::int64_t end, int lanes) {
  f32x16 sum[kRows][kColumns];
  const f32x16 zero(0.0f);
  STRATA_UNROLL_8
  for (int r = 0; r < kRows; ++r) {
    const float keep = p.row_keep == nullptr ? p.keep : p.row_keep[i + r];
    STRATA_UNROLL_8
    for (int c = 0; c < kColumns; ++c)
      sum[r][c] = keep == 0.0f ? zero
                               : f32splat(keep) * load_lanes(p.c + (i + r) * p.c_row + j + 16 * c,
                                                             lanes_of<kColumns>(lanes, c)) +
                                     zero;
  }
  const float* a = p.a + i * p.a_row + begin * p.a_column;
  const float* b = p.b + begin * p.b_row + j;
  for (std::int64_t l = begin; l < end; ++l, a += p.a_column, b += p.b_row) {
    f32x16 of_b[kColumns];
    STRATA_UNROLL_8
    for (int c = 0; c < kColumns; ++c) of_b[c] = load_lanes(b + 16 * c, lanes_of<kColumns>(lanes, c));
    STRATA_UNROLL_8
    for (int r = 0; r < kRows; ++r) {
      const f32splat factor(a[r * p.a_row]);
      STRATA_UNROLL_8
      for (int c = 0; c < kColumns; ++c) sum[r][c] = sum[r][c] + factor * of_b[c];
    }
  }
  STRATA_UNROLL_8
  for (int r = 0; r < kRows; ++r) {
    STRATA_UNROLL_8
    for (int c = 0; c < kColumns; ++c)
      store_lanes(p.c + (i + r) * p.c_row + j + 16 * c, sum[r][c], lanes_of<kColumns>(lanes, c));
  }
}

template <int kRows>
void product_rows(const Product& p, std::int64_t i) {
  const std::int64_t first = p.first + i, last = first + kRows;
  const std::int64_t begin = p.zeros == Product::Zeros::below && first < p.k ? first : 0,
                     end = p.zeros == Product::Zeros::above && last < p.k ? last : p.k,
                     n = p.only_lower && last < p.n ? last : p.n;
  std::int64_t j = 0;
  for (; j < n && j + 16 * kTileColumns <= p.n; j += 16 * kTileColumns)
    product_tile<kRows, kTileColumns>(p, i, j, begin, end, 16);
  for (; j < n && j + 16 <= p.n; j += 16) product_tile<kRows, 1>(p, i, j, begin, end, 16);
  if (j < n) product_tile<kRows, 1>(p, i, j, begin, end, static_cast<int>(p.n - j));
}

/// Subtracts from kColumns runs of elements of a row of y the terms [begin, end) of a times earlier rows.
template <int kColumns>
STRATA_HD void solve_tile(const UnitTriangle& t, std::int64_t row, std::int64_t j, std::int64_t begin,
                          std::int64_t end, int lanes) {
  f32x16 sum[kColumns];
  STRATA_UNROLL_8
  for (int c = 0; c < kColumns; ++c)
    sum[c] = load_lanes(t.y + row * t.n + j + 16 * c, lanes_of<kColumns>(lanes, c));
  const std::int64_t step = t.transposed ? detail::kDeltaChunk : 1;
  const float* const a = t.a + (t.transposed ? row : row * detail::kDeltaChunk);
  for (std::int64_t l = begin; l < end; ++l) {
    const f32splat factor(a[l * step]);
    STRATA_UNROLL_8
    for (int c = 0; c < kColumns; ++c)
      sum[c] = sum[c] - factor * load_lanes(t.y + l * t.n + j + 16 * c, lanes_of<kColumns>(lanes, c));
  }
  STRATA_UNROLL_8
  for (int c = 0; c < kColumns; ++c)
    store_lanes(t.y + row * t.n + j + 16 * c, sum[c], lanes_of<kColumns>(lanes, c));
}

template <int kColumns>
void solve_columns(const UnitTriangle& t, std::int64_t j, int lanes) {
  if (t.transposed)
    for (std::int64_t row = t.last - 1; row >= t.first; --row)
      solve_tile<kColumns>(t, row, j, row + 1, t.last, lanes);
  else
    for (std::int64_t row = t.first; row < t.last; ++row) solve_tile<kColumns>(t, row, j, 0, row, lanes);
}

#if defined(__clang__)
#define STRATA_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define STRATA_INDEPENDENT _Pragma("GCC ivdep")
#endif

/// Sixteen lanes in loops that the compiler vectorizes.
struct DeltaLanes {
  STRATA_HD bool is_leader() const { return true; }
  template <class F>
  STRATA_HD void for_each(std::int64_t n, const F& f) const {
    STRATA_INDEPENDENT
    for (std::int64_t i = 0; i < n; ++i) f(i);
  }
  template <class V, class F>
  STRATA_HD V sum(std::int64_t n, const F& f) const {
    V lanes[16] = {};
    std::int64_t i = 0;
    for (; i + 16 <= n; i += 16)
      for (int lane = 0; lane < 16; ++lane) lanes[lane] = lanes[lane] + f(i + lane);
    for (int lane = 0; i + lane < n; ++lane) lanes[lane] = lanes[lane] + f(i + lane);
    for (int width = 8; width > 0; width /= 2)
      for (int lane = 0; lane < width; ++lane) lanes[lane] = lanes[lane] + lanes[lane + width];
    return lanes[0];
  }
};

struct DeltaUnit {
  template <class F>
  void rows(std::int64_t n, const F& f) const {
    for (std::int64_t r = 0; r < n; ++r) f(r, DeltaLanes());
  }
  void product(const Product& p) const {
    std::int64_t i = 0;
    for (; i + kTileRows <= p.m; i += kTileRows) product_rows<kTileRows>(p, i);
    for (; i < p.m; ++i) product_rows<1>(p, i);
  }
  void solve(const UnitTriangle& t) const {
    constexpr int kColumns = f32x16::kParts <= 2 ? 4 : 1;
    std::int64_t j = 0;
    for (; j + 16 * kColumns <= t.n; j += 16 * kColumns) solve_columns<kColumns>(t, j, 16);
    for (; j + 16 <= t.n; j += 16) solve_columns<1>(t, j, 16);
    if (j < t.n) solve_columns<1>(t, j, static_cast<int>(t.n - j));
  }
};

}  // namespace
}  // namespace strata::kernels::STRATA_ISA
