#include "gemm/gemm_tiled.h"

#include <algorithm>

#include <strata/simd/convert.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/bf16_gemm.h>

#include "dtype_dispatch.h"
#include "gemm/gemm_16bit.h"
#include "gemm/native_bf16.h"
#include "gemm/tile_grid.h"
#include "simd_table.h"

namespace strata::kernels::detail {
namespace {

template <class T>
void add_row_bias(const Gemm& g, const T* bias) {
  auto* c = static_cast<float*>(g.c);
  for (std::int64_t i = 0; i < g.m && bias != nullptr; ++i)
    simd_table<T>().accumulate_row(c + i * g.ldc, bias, g.n);
}

/// Requests the memory of an f32 C, before a GEMM that writes it in tiles of 16 rows: the CPU does not see
/// such a stride coming, so that each of its cache lines would be waited for.
void prefetch_result(const Gemm& g) {
  constexpr std::int64_t kLine = 64 / sizeof(float);
  const auto* c = static_cast<const float*>(g.c);
  for (std::int64_t i = 0; i < g.m; ++i)
    for (std::int64_t j = 0; j < g.n; j += kLine) __builtin_prefetch(c + i * g.ldc + j, 1, 2);
}

/// Computes one tile of a 16-bit C: the sum is computed in an f32 block, and the bias and the previous C are
/// added before the only rounding. oneDNN's own bf16 destination was not faster when measured (one thread on
/// Zen 5: the compact f32 tile is written and read in cache while the GEMM is bound by arithmetic).
template <class T>
void rounded_tile(const Gemm& g, const T* bias, float* block) {
  Gemm sum = g;
  sum.c = block;
  sum.ldc = g.n;
  sum.accumulate = false;
  gemm_to_f32(sum, block + kLargestTile.rows * kLargestTile.columns);
  add_row_bias(sum, bias);
  for (std::int64_t i = 0; i < g.m; ++i) {
    T* row = static_cast<T*>(g.c) + i * g.ldc;
    if (g.accumulate) simd_table<T>().accumulate_row(block + i * g.n, row, g.n);
    simd::narrow(block + i * g.n, row, g.n);
  }
}

/// Computes one tile of any dtype.
template <class T>
void tile(const Gemm& g, const T* bias) {
  if constexpr (dtype_of<T> == DType::f32) {
    gemm_one_thread(g);
    add_row_bias(g, bias);
  } else {
    float* block = tile_scratch().acquire();
    if (g.c_dtype == DType::f32) {
      prefetch_result(g);
      gemm_to_f32(g, block);
      add_row_bias(g, bias);
    } else {
      rounded_tile(g, bias, block);
    }
    tile_scratch().release(block);
  }
}

/// The GEMM of the tile of C that begins at (row, column).
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

TileScratch& tile_scratch() {
  static TileScratch all;  // scratch memory, so sharing it between all pools changes no result
  return all;
}

void gemm_to_f32(const Gemm& g, float* panels) noexcept {
  if (g.dtype == DType::f32)
    gemm_one_thread(g);
  else if (g.dtype == DType::bf16 && bf16_gemm() != Bf16Gemm::widened)
    gemm_native_bf16(g);
  else
    gemm_widened(g, panels);
}

void gemm_tiled(const Gemm& g, const void* row_bias, ThreadPool& pool) {
  if (g.m == 0 || g.n == 0) return;
  const TileGrid grid = tile_grid(g.m, g.n);
  const std::int64_t down = dispatch::ceil_div(g.m, grid.rows);
  const std::int64_t across = dispatch::ceil_div(g.n, grid.columns);
  if (g.dtype != DType::f32) tile_scratch().reserve(static_cast<std::size_t>(pool.threads()));
  dispatch_dtype(g.dtype, [&]<class T>(std::type_identity<T>) {
    pool.parallel_for(down * across, [&](std::int64_t i) {
      const std::int64_t row = i / across * grid.rows, column = i % across * grid.columns;
      tile<T>(tile_of<T>(g, grid, row, column),
              row_bias == nullptr ? nullptr : static_cast<const T*>(row_bias) + column);
    });
  });
}

}  // namespace strata::kernels::detail
