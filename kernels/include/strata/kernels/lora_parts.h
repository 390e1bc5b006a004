#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace strata::kernels {

/// Rows [first_row, first_row + rows) of the matrix, adapted by `rank` columns of u. Parts follow each other
/// in u's columns and in the elements of b.
struct LoraPart {
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t rank = 0;
  friend bool operator==(const LoraPart&, const LoraPart&) = default;
};
/// The parts of a matrix: that of queries, keys and values has three.
struct LoraParts {
  std::array<LoraPart, 3> part = {};
  std::size_t n = 0;
  std::span<const LoraPart> all() const noexcept { return {part.data(), std::min(n, part.size())}; }
  friend bool operator==(const LoraParts&, const LoraParts&) = default;
};

}  // namespace strata::kernels
