#include "gemm.h"

#include <algorithm>

#include <strata/cpuopt/convert.h>

#include "gemm_16bit.h"
#include "op.h"
#include "simd_table.h"

namespace strata::kernels::detail {
namespace {

TileScratch& scratch() {
  static TileScratch all;  // memory without content: shared by all pools, it changes no result
  return all;
}

template <class T>
void add_row_bias(const Gemm& g, const T* bias) {
  auto* c = static_cast<float*>(g.c);
  for (std::int64_t i = 0; i < g.m && bias != nullptr; ++i)
    simd_table<T>().accumulate_row(c + i * g.ldc, bias, g.n);
}

/// C in f32, from operands kept as T.
template <class T>
void gemm_to_f32(const Gemm& g, float* panels) {
  if (dtype_of<T> == DType::f32)
    gemm_one_thread(g);
  else if (dtype_of<T> == DType::bf16 && bf16_gemm() != Bf16Gemm::widened)
    gemm_native_bf16(g);
  else
    gemm_widened(g, panels);
}

/// One tile whose C is kept as T: made in f32 beside it, so that bias and what C held join the sum before its
/// only rounding. oneDNN's own bf16 destination was no faster where measured (one thread on Zen 5: a compact
/// f32 tile is written and read in cache while the product is bound by its arithmetic).
template <class T>
void rounded_tile(const Gemm& g, const T* bias, float* block) {
  Gemm sum = g;
  sum.c = block;
  sum.ldc = g.n;
  sum.accumulate = false;
  gemm_to_f32<T>(sum, block + kLargestTile.rows * kLargestTile.columns);
  add_row_bias(sum, bias);
  for (std::int64_t i = 0; i < g.m; ++i) {
    T* row = static_cast<T*>(g.c) + i * g.ldc;
    if (g.accumulate) simd_table<T>().accumulate_row(block + i * g.n, row, g.n);
    cpuopt::narrow(block + i * g.n, row, g.n);
  }
}

/// One tile of any kind.
template <class T>
void tile(const Gemm& g, const T* bias) {
  if constexpr (dtype_of<T> == DType::f32) {
    gemm_one_thread(g);
    add_row_bias(g, bias);
  } else {
    float* block = scratch().acquire();
    if (g.c_dtype == DType::f32) {
      gemm_to_f32<T>(g, block);
      add_row_bias(g, bias);
    } else {
      rounded_tile(g, bias, block);
    }
    scratch().release(block);
  }
}

/// The part of `g` that makes rows [row, ..) and columns [column, ..) of C.
template <class T>
Gemm tile_of(const Gemm& g, const TileGrid& grid, std::int64_t row, std::int64_t column) {
  Gemm part = g;
  part.m = std::min(grid.rows, g.m - row);
  part.n = std::min(grid.columns, g.n - column);
  part.a = static_cast<const T*>(g.a) + (g.trans_a ? row : row * g.lda);
  part.b = static_cast<const T*>(g.b) + (g.trans_b ? column * g.ldb : column);
  const std::int64_t at = row * g.ldc + column;
  part.c = static_cast<std::byte*>(g.c) + at * static_cast<std::int64_t>(size_of(g.c_dtype));
  return part;
}

}  // namespace

TileGrid tile_grid(std::int64_t m, std::int64_t n) noexcept {
  // The largest tile that still makes 16 of them. Measured at 1 thread on Zen 5: 256 x 512 is within 4 % of
  // one call over the whole of C, 128 x 128 within 11 %; smaller ones pack too often. bf16 products do not
  // ask for other tiles: there larger ones were within the noise of 256 x 512 too.
  constexpr TileGrid kGrids[] = {kLargestTile, {256, 256}, {256, 128}, {128, 128}};
  for (const TileGrid grid : kGrids)
    if (ceil_div(m, grid.rows) * ceil_div(n, grid.columns) >= 16) return grid;
  return kGrids[3];
}

void gemm_tiled(const Gemm& g, const void* row_bias, ThreadPool& pool) {
  if (g.m == 0 || g.n == 0) return;
  const TileGrid grid = tile_grid(g.m, g.n);
  const std::int64_t down = ceil_div(g.m, grid.rows);
  const std::int64_t across = ceil_div(g.n, grid.columns);
  if (g.dtype != DType::f32) scratch().reserve(static_cast<std::size_t>(pool.threads()));
  dispatch_dtype(g.dtype, [&]<class T>(std::type_identity<T>) {
    pool.parallel_for(down * across, [&](std::int64_t i) {
      const std::int64_t row = i / across * grid.rows, column = i % across * grid.columns;
      tile<T>(tile_of<T>(g, grid, row, column),
              row_bias == nullptr ? nullptr : static_cast<const T*>(row_bias) + column);
    });
  });
}

}  // namespace strata::kernels::detail
