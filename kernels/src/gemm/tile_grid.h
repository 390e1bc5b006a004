#pragma once

#include <cstdint>

#include <strata/dispatch/rows.h>

namespace strata::kernels::detail {

/// Rows and columns of one tile of C, which depend only on the shapes and never on threads.
struct TileGrid {
  std::int64_t rows, columns;
};
inline constexpr TileGrid kLargestTile = {256, 512};

/// The largest tile that gives at least 16 tiles of an [m, n] result. Measured with one thread on Zen 5: 256
/// x 512 is within 4 % of one call over the whole of C, 128 x 128 within 11 %; smaller tiles pack operands
/// too often. bf16 GEMMs use the same tiles: larger ones were within the noise of 256 x 512.
constexpr TileGrid tile_grid(std::int64_t m, std::int64_t n) noexcept {
  constexpr TileGrid kGrids[] = {kLargestTile, {256, 256}, {256, 128}, {128, 128}};
  for (const TileGrid grid : kGrids)
    if (dispatch::ceil_div(m, grid.rows) * dispatch::ceil_div(n, grid.columns) >= 16) return grid;
  return kGrids[3];
}

}  // namespace strata::kernels::detail
