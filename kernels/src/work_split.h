#pragma once

#include <cstddef>
#include <cstdint>

#include <strata/dispatch/rows.h>

/// How much work an item of a host op is, by shapes alone, so that results do not depend on threads.
namespace strata::kernels::detail {

/// Independent rows per work item: about 16,384 elements, so that scheduling an item costs little beside its
/// work.
constexpr std::int64_t rows_per_item(std::int64_t row_length) noexcept {
  return row_length > 0 && row_length < 16384 ? 16384 / row_length : 1;
}
/// Elements per work item of elementwise ops.
inline constexpr std::int64_t kElementsPerItem = 16384;

/// The blocks of rows over which sums over many rows are computed: at most 64 blocks, so that the partial
/// sums need little memory.
struct RowBlocks {
  std::int64_t rows, count;
};
constexpr RowBlocks row_blocks(std::int64_t total_rows) noexcept {
  const std::int64_t rows = total_rows > 64 * 64 ? dispatch::ceil_div(total_rows, 64) : 64;
  return {rows, dispatch::ceil_div(total_rows, rows)};
}
/// The workspace of such sums of `columns` values: one f32 sum per block and column.
constexpr std::size_t row_sums_bytes(std::int64_t rows, std::int64_t columns) noexcept {
  return static_cast<std::size_t>(row_blocks(rows).count * columns) * sizeof(float);
}

}  // namespace strata::kernels::detail
