#pragma once

#include <cstdint>

#include <strata/simd/math/host_device.h>
#include <strata/dispatch/cuda/lanes.h>

/// The tiles of the rows of experts. Their number is bounded by shapes alone, and a thread block finds its
/// tile from the offsets, so that the host launches the kernel without knowing them.
namespace strata::kernels::detail {

/// Rows and columns of a tile of a result.
inline constexpr int kExpertTile = 128;

/// The offsets of experts [first, first + experts), within `rows` rows whatever they are.
struct ExpertOffsets {
  const std::int32_t* offsets;
  std::int64_t first, experts, rows;

  /// Where the rows of expert `e` of the block begin; those of expert e - 1 end there.
  STRATA_HD std::int64_t begin(std::int64_t e) const {
    const std::int64_t at = offsets[first + e];
    return at < 0 ? 0 : at > rows ? rows : at;
  }
  /// The number of the first tile of an expert. The next expert's is larger by at least as many tiles as the
  /// expert has, and by one more if that is needed to depend on the offset alone.
  STRATA_HD std::int64_t first_tile(std::int64_t e) const { return begin(e) / kExpertTile + e; }
  /// The most tiles that there can be.
  STRATA_HD std::int64_t most_tiles() const { return rows / kExpertTile + experts; }
};

/// A tile's expert, first row, and number of rows, which is 0 if there is no such tile.
struct ExpertTileRows {
  std::int64_t expert, row;
  int count;
};
STRATA_HD ExpertTileRows expert_tile(const ExpertOffsets& o, std::int64_t number) {
  number += o.first_tile(0);
  if (number >= o.first_tile(o.experts)) return {0, 0, 0};
  std::int64_t low = 0, high = o.experts;  // the expert is in [low, high)
  while (high - low > 1) {
    const std::int64_t middle = (low + high) / 2;
    if (o.first_tile(middle) <= number)
      low = middle;
    else
      high = middle;
  }
  const std::int64_t row = o.begin(low) + (number - o.first_tile(low)) * kExpertTile,
                     left = o.begin(low + 1) - row;
  return {low, row, static_cast<int>(left < 0 ? 0 : left < kExpertTile ? left : kExpertTile)};
}

/// A matrix operand of a tile: element (outer, inner) is at outer * outer_ld + inner * inner_ld, for
/// outer < extent; what is beyond is zero.
template <class T>
struct TileOperand {
  const T* at;
  std::int64_t outer_ld, inner_ld;
  int extent;
};

}  // namespace strata::kernels::detail
