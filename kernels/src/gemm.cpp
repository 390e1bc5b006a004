#include "gemm.h"

#include <algorithm>

#include "op.h"
#include "row_table.h"

namespace strata::kernels::detail {

TileGrid tile_grid(std::int64_t m, std::int64_t n) noexcept {
  // The largest tile that still makes 16 of them. Measured at 1 thread on Zen 5: 256 x 512 is within 4 % of
  // one call over the whole of C, 128 x 128 within 11 %; smaller ones pack too often.
  constexpr TileGrid kGrids[] = {{256, 512}, {256, 256}, {256, 128}, {128, 128}};
  for (const TileGrid grid : kGrids)
    if (ceil_div(m, grid.rows) * ceil_div(n, grid.columns) >= 16) return grid;
  return kGrids[3];
}

void gemm_tiled(const Gemm& g, const float* row_bias, ThreadPool& pool) {
  if (g.m == 0 || g.n == 0) return;
  const TileGrid grid = tile_grid(g.m, g.n);
  const std::int64_t down = ceil_div(g.m, grid.rows);
  const std::int64_t across = ceil_div(g.n, grid.columns);
  pool.parallel_for(down * across, [&](std::int64_t tile) {
    const std::int64_t row = tile / across * grid.rows;
    const std::int64_t column = tile % across * grid.columns;
    Gemm part = g;
    part.m = std::min(grid.rows, g.m - row);
    part.n = std::min(grid.columns, g.n - column);
    part.a = g.a + (g.trans_a ? row : row * g.lda);
    part.b = g.b + (g.trans_b ? column * g.ldb : column);
    part.c = g.c + row * g.ldc + column;
    gemm_one_thread(part);
    for (std::int64_t i = 0; i < part.m && row_bias != nullptr; ++i)
      row_table().add_to(part.c + i * part.ldc, row_bias + column, part.n);
  });
}

}  // namespace strata::kernels::detail
